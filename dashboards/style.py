"""The panel types in use, over grafanalib.

Knows grafanalib and Grafana's panel options, no metric. grafanalib 0.7.1 is the last release and predates many options
of current Grafana: those it lacks are set through ``extraJson``, and ``normalise`` drops those that are obsolete.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from dashboards.promql import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from grafanalib.core import Dashboard

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
"""Text of an empty cell in a row that exists, without the colour of any threshold."""
NOT_REPORTED: Final = "not reported"
"""Text of an empty cell where not every source reports the value, though its data is fresh."""
NOT_SO: Final = "-"
"""Text of an empty cell where a missing value means that something is not the case."""
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


def timeseries(title: str, description: str, queries: Sequence[PanelQuery], unit: Unit, *, bars: bool = False) -> Panel:
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
