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
    from collections.abc import Mapping, Sequence

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

GREEN: Final = "green"
YELLOW: Final = "yellow"
ORANGE: Final = "orange"
RED: Final = "red"
BLUE: Final = "blue"
PURPLE: Final = "purple"
TEXT: Final = "text"
"""The colour of ordinary text."""
NO_COLOR: Final = "transparent"

NO_DATA: Final = "no fresh data"
UNKNOWN: Final = "unknown"
"""What an empty cell says in a row that is there, without the colour of any threshold."""
NOT_REPORTED: Final = "not reported"
"""What is empty says where not every source reports it, though its data is fresh."""
NOT_SO: Final = "-"
"""What an empty cell says where a missing value means that something is not the case."""
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


def steps(base: str, *above: tuple[float, str]) -> Steps:
    """Return colour thresholds: the base colour, then (lower bound, colour) ascending."""
    return [{"color": base, "value": None}, *({"color": color, "value": value} for value, color in above)]


def alarm_above_zero(color: str) -> Steps:
    """Return thresholds: green at zero, the colour from one on."""
    return steps(GREEN, (1, color))


def stat(  # noqa: PLR0913 - the parts of a stat
    title: str, description: str, expression: str, colors: Steps, unit: Unit = Unit.COUNT, *, no_value: str = NO_DATA
) -> Panel:
    """One number, of now: without fresh data it says so, and shows neither zero nor what was true an hour ago.

    Hence an instant query. The last value of a range query is the newest there was in the whole time range.
    """
    return core.Stat(
        **frame(title, description),
        targets=targets([PanelQuery(expression)], instant=True),
        format=unit.value,
        thresholds=colors,
        reduceCalc="lastNotNull",
        graphMode="none",
        colorMode="background" if len(colors) > 1 else "value",  # a number without an alarm is calm
        noValue=no_value,
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
        **frame(title, description),
        targets=targets(queries),
        unit=unit.value,
        drawStyle="bars" if bars else "line",
        fillOpacity=60 if bars else 10 if all(query.color for query in queries) else 0,
        stacking={"mode": "normal", "group": "A"} if bars else {"mode": "none", "group": "A"},
        tooltipMode="multi",
        tooltipSort="desc",
        overrides=[_color(letter(index), query.color) for index, query in enumerate(queries) if query.color],
        extraJson={
            "fieldConfig": {"defaults": {"custom": {"axisSoftMin": 0}, "min": 0}},
            "options": {"legend": {"showLegend": True}},
        },
    )


def state_timeline(  # noqa: PLR0913 - the parts of a state timeline
    title: str,
    description: str,
    queries: Sequence[PanelQuery],
    unit: Unit,
    colors: Steps,
    *,
    words: Mapping[str, tuple[str, str]] | None = None,
) -> Panel:
    """One band per series, coloured by value; ``words`` say what a value means."""
    mappings = [value_words(words)] if words else []
    return core.StateTimeline(
        **frame(title, description),
        targets=targets(queries),
        showValue="never",
        mergeValues=True,
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "unit": unit.value,
                    "thresholds": {"mode": "absolute", "steps": colors},
                    "mappings": mappings,
                }
            },
            "options": {"legend": {"showLegend": True}},
        },
    )


def value_words(words: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the mapping of values to words, each in a colour."""
    options = {
        value: {"text": text, "color": color, "index": index}
        for index, (value, (text, color)) in enumerate(words.items(), start=1)
    }
    return {"type": "value", "options": options}


def row(title: str) -> Panel:
    """A heading above the panels that follow."""
    return core.RowPanel(title=title)


def frame(title: str, description: str) -> dict[str, Any]:
    """Return what every panel has."""
    return {"title": title, "description": description, "dataSource": DATASOURCE}


def targets(queries: Sequence[PanelQuery], *, as_table: bool = False, instant: bool = False) -> list[core.Target]:
    """Return the queries of a panel, lettered in their order."""
    return [
        core.Target(
            expr=query.expression,
            legendFormat=query.legend or "__auto",
            refId=letter(index),
            format="table" if as_table else "time_series",
            instant=instant,
            datasource=DATASOURCE,
        )
        for index, query in enumerate(queries)
    ]


def letter(index: int) -> str:
    """Return the letter of a query by its position."""
    return chr(ord("A") + index)


def _color(query: str, color: str) -> dict[str, Any]:
    look = [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}]
    return {"matcher": {"id": "byFrameRefID", "options": query}, "properties": look}
