"""The panel types in use, over grafanalib.

Knows grafanalib and Grafana's panel options, no metric. grafanalib 0.7.1 is the last release and predates many options
of current Grafana: those it lacks are set through ``extraJson``, and ``normalised`` drops those that are obsolete.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from dashboards.promql import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from grafanalib.core import Dashboard

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

# The worst state has the most alarming colour. Purple is for what is not known: blind must not look like broken.
DARK_RED: Final = "dark-red"
"""No leader: neither reads nor writes."""
RED: Final = "red"
ORANGE: Final = "orange"
YELLOW: Final = "yellow"
GREEN: Final = "green"
BLUE: Final = "blue"
PURPLE: Final = "purple"
"""Nothing is known."""
TEXT: Final = "text"
"""The colour of ordinary text."""
NO_COLOR: Final = "transparent"
_THICK: Final = 3
"""Width in pixels of a line that must not be overlooked."""

NO_DATA: Final = "no fresh data"
UNKNOWN: Final = "unknown"
"""Text of an empty cell in a row that exists, without the colour of any threshold."""
NOT_REPORTED: Final = "not reported"
"""Text of an empty cell where not every source reports the value, though its data is fresh."""
NOT_SO: Final = "-"
"""Text of an empty cell where a missing value means that something is not the case."""
EVERY_VALUE: Final = "$__all"
"""Grafana's own value of a variable of which all values are chosen."""

Panel: TypeAlias = core.Panel
Steps: TypeAlias = list[dict[str, Any]]
Words: TypeAlias = "Mapping[str, tuple[str, str]]"
"""Texts and colours of values."""


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One PromQL query of a panel: a legend template over labels, a fixed colour or Grafana's palette."""

    expression: str
    legend: str = ""
    color: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """The board, or page, to which a click on a number leads."""

    title: str
    url: str


def steps(base: str, *above: tuple[float, str]) -> Steps:
    """Return colour thresholds: the base colour, then (lower bound, colour) ascending."""
    return [{"color": base, "value": None}, *({"color": color, "value": value} for value, color in above)]


def alarm_above_zero(color: str) -> Steps:
    """Return thresholds: green at zero, the colour from one on."""
    return steps(GREEN, (1, color))


def stat(  # noqa: PLR0913 - the parts of a stat
    title: str,
    description: str,
    expression: str,
    colors: Steps,
    unit: Unit = Unit.COUNT,
    *,
    no_value: str = NO_DATA,
    words: Words | None = None,
    link: Link | None = None,
) -> Panel:
    """One number, of now: without fresh data it says so, and shows neither zero nor what was true an hour ago.

    Hence an instant query. The last value of a range query is the newest there was in the whole time range.
    """
    return core.Stat(
        **frame(title, description),
        targets=targets([PanelQuery(expression)], instant=True),
        format=unit.value,
        thresholds=colors,
        mappings=[value_words(words)] if words else [],
        reduceCalc="lastNotNull",
        graphMode="none",
        colorMode="background" if len(colors) > 1 else "value",  # a number without an alarm is calm
        noValue=no_value,
        extraJson={"options": {"wideLayout": True}, "fieldConfig": {"defaults": _led_by(link)}},
    )


def tiles(title: str, description: str, query: PanelQuery, words: Words, link: Link) -> Panel:
    """One tile per series with its name, filled with the colour of its value: a hundred fit a screen."""
    return core.Stat(
        **frame(title, description),
        targets=targets([query], instant=True),
        format=Unit.BARE.value,
        thresholds=steps(TEXT),
        mappings=[value_words(words)],
        reduceCalc="lastNotNull",
        graphMode="none",
        colorMode="background",
        textMode="name",
        noValue=NO_DATA,
        extraJson={"options": {"wideLayout": True}, "fieldConfig": {"defaults": _led_by(link)}},
    )


def _led_by(link: Link | None) -> dict[str, Any]:
    return {"links": [{"title": link.title, "url": link.url}]} if link else {}


def timeseries(  # noqa: PLR0913 - the parts of a graph
    title: str,
    description: str,
    queries: Sequence[PanelQuery],
    unit: Unit,
    *,
    bars: bool = False,
    no_value: str | None = None,
) -> Panel:
    """Lines over time; stacked bars for events."""
    defaults: dict[str, Any] = {"custom": {"axisSoftMin": 0}, "min": 0}
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
            "fieldConfig": {"defaults": defaults | ({"noValue": no_value} if no_value else {})},
            "options": {"legend": {"showLegend": True}},
        },
    )


def state_timeline(  # noqa: PLR0913 - the parts of a state timeline
    title: str, description: str, queries: Sequence[PanelQuery], colors: Steps, *, words: Words, no_value: str = NO_DATA
) -> Panel:
    """One band per series, coloured by value; ``words`` say what a value means."""
    return core.StateTimeline(
        **frame(title, description),
        targets=targets(queries),
        showValue="never",
        mergeValues=True,
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "unit": Unit.BARE.value,
                    "thresholds": {"mode": "absolute", "steps": colors},
                    "mappings": [value_words(words)],
                    "noValue": no_value,
                }
            },
            "options": {"legend": {"showLegend": True}},
        },
    )


def value_words(words: Words) -> dict[str, Any]:
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
    if color == DARK_RED:
        look.append({"id": "custom.lineWidth", "value": _THICK})  # type: ignore[dict-item]
    return {"matcher": {"id": "byFrameRefID", "options": query}, "properties": look}


# Tables: one row per combination of labels, one column per query; every column has a width, so that none is clipped.
#
# A table without rows is a table without fresh data. One in which nothing is listed has one row, which says so in its
# first cell: blind and healthy never look alike.


_CHARACTER: Final = 8
"""Pixels that a character of a heading takes at most, in the mean."""
_MARGIN: Final = 32
"""Pixels next to a heading: its padding, and the arrow of the sort order."""
_NARROWEST: Final = 76
_DURATION: Final = 100
"""Pixels that days, hours, minutes and seconds take."""


def heading_width(title: str) -> int:
    """Return the pixels that a heading takes."""
    return max(_NARROWEST, _CHARACTER * len(title) + _MARGIN)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that says what a row is about: a label, its heading, its least width, and where a click leads.

    Attributes:
        label: of the series.
        title: heading.
        width: least width in pixels.
        links: where clicks on a cell lead.
        words: texts and colours of known values; other values keep their own.
        wraps: sentences take as many lines as they need.
    """

    label: str
    title: str
    width: int = 90
    links: tuple[Link, ...] = ()
    words: Words = field(default_factory=dict)
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class CellLook:
    """Look of values: words for some of them (text, colour), colours from a value on, of the text or the cell."""

    words: Words = field(default_factory=dict)
    steps: Steps | None = None
    fills: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of numbers: its query, unit and look, and what a cell says in a row without a value.

    A column that grows shares the width that is left over. Words need the pixels that they take.
    """

    title: str
    expression: str
    unit: Unit = Unit.COUNT
    look: CellLook = CellLook()
    empty: str = UNKNOWN
    grows: bool = False
    pixels: int = 0

    @property
    def width(self) -> int:
        """Pixels: the heading fits, and so do durations and words."""
        return max(heading_width(self.title), self.pixels, _DURATION if self.unit is Unit.DURATION else 0)


def alarm(color: str) -> CellLook:
    """Fill the cell with a colour from 1 on; below it the cell is calm."""
    return CellLook(steps=steps(NO_COLOR, (1, color)), fills=True)


def colored(base: str, *above: tuple[float, str]) -> CellLook:
    """Colour the text."""
    return CellLook(steps=steps(base, *above))


def in_words(words: Words, *, fills: bool = False) -> CellLook:
    """Say each value in words."""
    return CellLook(words, steps(NO_COLOR if fills else TEXT), fills)


def yes_no(yes: str = TEXT, no: str = TEXT) -> CellLook:
    """Say yes for 1 and no for 0, each in a colour."""
    return in_words({"1": ("yes", yes), "0": ("no", no)})


def table(  # noqa: PLR0913 - the parts of a table
    title: str,
    description: str,
    keys: Sequence[KeyColumn],
    columns: Sequence[TableColumn],
    sort_by: str,
    *,
    ascending: bool = False,
    nothing: str = "",
    no_value: str = NO_DATA,
) -> Panel:
    """One row per combination of key labels, one column per query, sorted by the column with a heading.

    ``nothing`` is what the first key says in the one row in which nothing is listed, where it is a link; ``no_value``
    is the text without rows.
    """
    return core.Table(
        **frame(title, description),
        targets=targets([PanelQuery(column.expression) for column in columns], as_table=True, instant=True),
        transformations=_as_one_table(keys, columns),
        overrides=[*_key_looks(keys, columns, nothing), *map(_column_look, columns)],
        sortBy=[core.TableSortByField(sort_by, desc=not ascending)],
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "custom": {"cellOptions": {"type": "auto"}, "minWidth": _NARROWEST},
                    "noValue": no_value,
                    "unit": Unit.COUNT.value,
                }
            },
            "options": {"cellHeight": "sm"},
        },
    )


def _as_one_table(keys: Sequence[KeyColumn], columns: Sequence[TableColumn]) -> list[dict[str, Any]]:
    """Join the query results on their labels, title the columns, drop the time and what is no key."""
    titles = {key.label: key.title for key in keys}
    titles |= {_value_field(index, columns): column.title for index, column in enumerate(columns)}
    order = {name: position for position, name in enumerate(titles)}
    dropped = {"Time": True} if "cluster" in titles else {"Time": True, "cluster": True}
    organize = {"excludeByName": dropped, "indexByName": order, "renameByName": titles}
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]


def _value_field(index: int, columns: Sequence[TableColumn]) -> str:
    """Return the name of a value: Grafana appends the query's letter only if there are several queries."""
    return f"Value #{letter(index)}" if len(columns) > 1 else "Value"


def _key_looks(keys: Sequence[KeyColumn], columns: Sequence[TableColumn], nothing: str) -> list[dict[str, Any]]:
    """Let only the widest key take what is left over, unless columns do.

    Grafana shares it evenly among all columns without a width, and only then looks at their least widths: several
    columns of different widths reach beyond the right edge.
    """
    growing = None if any(column.grows for column in columns) else max(keys, key=lambda key: key.width)
    return [
        _key_look(key, "custom.minWidth" if key is growing else "custom.width", NOT_SO if index else nothing)
        for index, key in enumerate(keys)
    ]


def _key_look(key: KeyColumn, width: str, nothing: str) -> dict[str, Any]:
    look: list[dict[str, Any]] = [{"id": width, "value": key.width}]
    if key.words:
        look.append({"id": "mappings", "value": [value_words(key.words)]})
    if key.wraps:
        look.append({"id": "custom.wrapText", "value": True})
    if key.words and not key.links:  # a link has its own colour
        look.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
    if key.links:
        look.append({"id": "links", "value": [{"title": link.title, "url": link.url} for link in key.links]})
    if key.links and not key.words and nothing:
        options = {EVERY_VALUE: {"text": nothing, "index": 0}}
        look.append({"id": "mappings", "value": [{"type": "value", "options": options}]})
    return {"matcher": {"id": "byName", "options": key.title}, "properties": look}


def _column_look(column: TableColumn) -> dict[str, Any]:
    look: list[dict[str, Any]] = [{"id": "unit", "value": column.unit.value}]
    base = NO_COLOR if column.look.fills else TEXT
    nothing = {"text": column.empty, "color": base, "index": 0}
    mappings: list[dict[str, Any]] = [{"type": "special", "options": {"match": "null", "result": nothing}}]
    if column.look.words:
        mappings.append(value_words(column.look.words))
    look.append({"id": "mappings", "value": mappings})
    look.append({"id": "custom.minWidth" if column.grows else "custom.width", "value": column.width})
    if column.look.steps:
        look.append({"id": "thresholds", "value": {"mode": "absolute", "steps": column.look.steps}})
        cell = {"type": "color-background", "mode": "basic"} if column.look.fills else {"type": "color-text"}
        look.append({"id": "custom.cellOptions", "value": cell})
    return {"matcher": {"id": "byName", "options": column.title}, "properties": look}


# Converts the output of grafanalib 0.7.1 to the classic JSON that Grafana 10 to 13 read without a migration.
#
# Knows Grafana's classic schema, no metric. Every level has an allow-list: a key that is not listed here is dropped,
# so that obsolete keys of the library (pre-7 panel keys, tag queries, interval factors) cannot return. Corrections,
# and why:
#
# - The base of a threshold is null. grafanalib can only write a string there, at which Grafana stops comparing, and
# then
#   shows five under-replicated partitions in green.
# - ``schemaVersion`` is 42; with an older one Grafana runs thirty migrations at each load, one of which drops the
# shared
#   crosshair.
# - A target has ``range`` or ``instant``, never ``intervalFactor``, which halves the resolution.
# - Null means "absent" everywhere else, so nulls are dropped.


SCHEMA_VERSION: Final = 42

Json = dict[str, Any]

_DASHBOARD: Final = (
    "annotations", "description", "editable", "graphTooltip", "links", "panels", "refresh", "tags", "templating",
    "time", "timezone", "title", "uid", "version",
)  # fmt: skip
_PANEL: Final = (
    "datasource", "description", "fieldConfig", "gridPos", "id", "options", "targets", "title", "transformations",
    "type",
)  # fmt: skip
_ROW: Final = ("collapsed", "gridPos", "id", "panels", "title", "type")
_TARGET: Final = ("datasource", "expr", "format", "legendFormat", "refId")
_VARIABLE: Final = (
    "allValue", "datasource", "hide", "includeAll", "label", "multi", "name", "query", "refresh", "regex", "sort",
    "type",
)  # fmt: skip
_TABLE_CUSTOM: Final = ("align", "cellOptions", "filterable", "minWidth")

_OWN_ANNOTATIONS: Final = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}


def normalised(dashboard: Dashboard) -> Json:
    """Return the classic JSON of a dashboard, with panel ids in reading order."""
    raw: Json = json.loads(json.dumps(dashboard.auto_panel_ids(), cls=DashboardEncoder))
    clean = _only(raw, _DASHBOARD)
    clean["annotations"] = {"list": [_OWN_ANNOTATIONS, *raw["annotations"]["list"]]}
    clean["panels"] = [_panel(panel) for panel in raw["panels"]]
    clean["templating"] = {"list": [_variable(variable) for variable in raw["templating"]["list"]]}
    clean["schemaVersion"] = SCHEMA_VERSION
    clean["timepicker"] = {}
    return clean


def _panel(raw: Json) -> Json:
    if raw["type"] == "row":
        return _only(raw, _ROW)
    clean = _only(raw, _PANEL)
    clean["targets"] = [_target(target) for target in raw["targets"]]
    clean["fieldConfig"] = _field_config(raw["fieldConfig"], raw["type"])
    return clean


def _target(raw: Json) -> Json:
    instant = bool(raw["instant"])
    return {**_only(raw, _TARGET), "editorMode": "code", "instant": instant, "range": not instant}


def _field_config(raw: Json, panel_type: str) -> Json:
    defaults = _without_nulls(raw["defaults"])
    if panel_type == "table":
        defaults["custom"] = _only(defaults["custom"], _TABLE_CUSTOM)
    if defaults["thresholds"]["steps"]:
        _restore_base(defaults["thresholds"])
    else:
        del defaults["thresholds"]
    overrides = _without_nulls(raw["overrides"])
    for look in (look for override in overrides for look in override["properties"]):
        if look["id"] == "thresholds":
            _restore_base(look["value"])
    return {"defaults": defaults, "overrides": overrides}


def _restore_base(thresholds: Json) -> None:
    steps = [{"color": step["color"], "value": _number(step.get("value"))} for step in thresholds["steps"]]
    first, *others = sorted(steps, key=lambda step: float("-inf") if step["value"] is None else step["value"])
    thresholds["steps"] = [{**first, "value": None}, *others]


def _number(value: float | str | None) -> float | None:
    """Convert the string that grafanalib writes for the base to None."""
    return None if isinstance(value, str) else value


def _variable(raw: Json) -> Json:
    clean = {key: value for key, value in _only(raw, _VARIABLE).items() if value != ""}
    if raw["type"] == "query":
        clean["definition"] = raw["query"]
    return {**clean, "options": [], "skipUrlSync": False}


def _only(raw: Mapping[str, Any], keys: Iterable[str]) -> Json:
    return {key: _without_nulls(raw[key]) for key in keys if raw.get(key) is not None}


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
