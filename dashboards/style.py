"""The panel types in use, over grafanalib.

Knows grafanalib and Grafana's panel options, no metric. grafanalib 0.7.1 is the last release and predates many options
of current Grafana: those it lacks are set through ``extraJson``, and ``normalise`` drops those that are obsolete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from grafanalib import core

from dashboards.promql import Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

GREEN: Final = "green"
YELLOW: Final = "yellow"
ORANGE: Final = "orange"
RED: Final = "red"
BLUE: Final = "blue"

NO_DATA: Final = "no fresh data"
UNKNOWN: Final = "unknown"
"""What an empty cell says in a row that is there. It has no colour: that of the lowest threshold would be green."""
NONE_AT_RISK: Final = "none"
"""The name in the one row of a table in which nothing is listed, so that it differs from a table without data."""

Panel: TypeAlias = core.Panel
Steps: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One PromQL query of a panel: a legend template over labels, a fixed colour or Grafana's palette."""

    expression: str
    legend: str = ""
    color: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of a table: its query, unit and colours."""

    title: str
    expression: str
    unit: Unit = Unit.COUNT
    steps: Steps | None = None


def steps(base: str, *above: tuple[float, str]) -> Steps:
    """Return colour thresholds: the base colour, then (lower bound, colour) ascending."""
    return [{"color": base, "value": None}, *({"color": color, "value": value} for value, color in above)]


def alarm_above_zero(color: str) -> Steps:
    """Return thresholds: green at zero, the colour from one on."""
    return steps(GREEN, (1, color))


def stat(title: str, description: str, expression: str, colors: Steps, unit: Unit = Unit.COUNT) -> Panel:
    """One number, of now: without fresh data it says so, and shows neither zero nor what was true an hour ago.

    Hence an instant query. The last value of a range query is the newest there was in the whole time range.
    """
    return core.Stat(
        **_frame(title, description),
        targets=_targets([PanelQuery(expression)], instant=True),
        format=unit.value,
        thresholds=colors,
        reduceCalc="lastNotNull",
        graphMode="none",
        colorMode="background",
        noValue=NO_DATA,
        extraJson={"options": {"wideLayout": True}},
    )


def timeseries(
    title: str,
    description: str,
    queries: Sequence[PanelQuery],
    unit: Unit,
    *,
    bars: bool = False,
) -> Panel:
    """Lines over time; stacked bars for events."""
    return core.TimeSeries(
        **_frame(title, description),
        targets=_targets(queries),
        unit=unit.value,
        drawStyle="bars" if bars else "line",
        fillOpacity=60 if bars else 10,
        stacking={"mode": "normal", "group": "A"} if bars else {"mode": "none", "group": "A"},
        tooltipMode="multi",
        tooltipSort="desc",
        overrides=[_color(_letter(index), query.color) for index, query in enumerate(queries) if query.color],
        extraJson={
            "fieldConfig": {"defaults": {"custom": {"axisSoftMin": 0}, "min": 0}},
            "options": {"legend": {"showLegend": True}},
        },
    )


def state_timeline(title: str, description: str, queries: Sequence[PanelQuery], unit: Unit, colors: Steps) -> Panel:
    """One band per series, coloured by value."""
    return core.StateTimeline(
        **_frame(title, description),
        targets=_targets(queries),
        showValue="never",
        mergeValues=True,
        extraJson={
            "fieldConfig": {"defaults": {"unit": unit.value, "thresholds": {"mode": "absolute", "steps": colors}}},
            "options": {"legend": {"showLegend": True}},
        },
    )


def table(title: str, description: str, keys: Sequence[str], columns: Sequence[TableColumn], sort_by: str) -> Panel:
    """One row per combination of key labels, one column per query, sorted descending by one column."""
    return core.Table(
        **_frame(title, description),
        targets=_targets([PanelQuery(column.expression) for column in columns], as_table=True, instant=True),
        transformations=_as_one_table(keys, columns),
        overrides=[_column_look(column) for column in columns],
        sortBy=[core.TableSortByField(sort_by, desc=True)],
        extraJson={
            "fieldConfig": {
                "defaults": {"custom": {"cellOptions": {"type": "auto"}}, "noValue": NO_DATA, "unit": Unit.COUNT.value}
            },
            "options": {"cellHeight": "sm"},
        },
    )


def row(title: str) -> Panel:
    """A heading above the panels that follow."""
    return core.RowPanel(title=title)


def _frame(title: str, description: str) -> dict[str, Any]:
    return {"title": title, "description": description, "dataSource": DATASOURCE}


def _targets(queries: Sequence[PanelQuery], *, as_table: bool = False, instant: bool = False) -> list[core.Target]:
    return [
        core.Target(
            expr=query.expression,
            legendFormat=query.legend or "__auto",
            refId=_letter(index),
            format="table" if as_table else "time_series",
            instant=instant,
            datasource=DATASOURCE,
        )
        for index, query in enumerate(queries)
    ]


def _letter(index: int) -> str:
    return chr(ord("A") + index)


def _as_one_table(keys: Sequence[str], columns: Sequence[TableColumn]) -> list[dict[str, Any]]:
    """Join the query results on their labels, title the columns, drop the time."""
    titles = {_value_field(index, columns): column.title for index, column in enumerate(columns)}
    order = {name: position for position, name in enumerate((*keys, *titles))}
    organize = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": titles}
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]


def _value_field(index: int, columns: Sequence[TableColumn]) -> str:
    """Return the name of a value: Grafana appends the query's letter only if there are several queries."""
    return f"Value #{_letter(index)}" if len(columns) > 1 else "Value"


def _column_look(column: TableColumn) -> dict[str, Any]:
    look: list[dict[str, Any]] = [{"id": "unit", "value": column.unit.value}]
    unknown = {"text": UNKNOWN, "color": "transparent", "index": 0}
    look.append({"id": "mappings", "value": [{"type": "special", "options": {"match": "null", "result": unknown}}]})
    if column.steps:
        look.append({"id": "thresholds", "value": {"mode": "absolute", "steps": column.steps}})
        look.append({"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}})
    return {"matcher": {"id": "byName", "options": column.title}, "properties": look}


def _color(query: str, color: str) -> dict[str, Any]:
    look = [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}]
    return {"matcher": {"id": "byFrameRefID", "options": query}, "properties": look}
