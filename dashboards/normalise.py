"""Converts the output of grafanalib 0.7.1 to the classic JSON that Grafana 10 to 13 read without a migration.

Knows Grafana's classic schema, no metric. Every level has an allow-list: a key that is not listed here is dropped, so
that obsolete keys of the library (pre-7 panel keys, tag queries, interval factors) cannot return. Corrections, and why:

- The base of a threshold is null. grafanalib can only write a string there, at which Grafana stops comparing, and then
  shows five under-replicated partitions in green.
- ``schemaVersion`` is 42; with an older one Grafana runs thirty migrations at each load, one of which drops the shared
  crosshair.
- A target has ``range`` or ``instant``, never ``intervalFactor``, which halves the resolution.
- Null means "absent" everywhere else, so nulls are dropped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from grafanalib._gen import DashboardEncoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from grafanalib.core import Dashboard

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
