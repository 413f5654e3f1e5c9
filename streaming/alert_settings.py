"""The section ``[alerts]``: which alerts there are, how severe they are and when they fire, and of what there are none.

It holds everywhere: for the series of conditions, which the exporter exposes, for the rules over them and for the
boards. One alert is ``[alerts.rules.NAME]``; a wrong name is answered with those that are right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from streaming.contracts.alerts import ALERTS, OPT_IN, Alert, Pack, ThresholdUnit
from streaming.contracts.conditions import RULES, Condition, Rule
from streaming.contracts.events import Severity
from streaming.contracts.identifiers import SECOND
from streaming.durations import seconds_of
from streaming.errors import ConfigurationError
from streaming.name_patterns import check_patterns

_KEYS: Final = ("severity", "for", "threshold", "off")
_SEVERITIES: Final = tuple(Severity)
_LONGEST: Final = 30 * 86_400.0
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)
_SEVERITY_NAME: Final = re.compile(r"[-\w.]+")
_DOMAIN: Final = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LETTERS: Final = "use at most 63 letters, digits, - _ and ., with a letter or digit at both ends"
_ADDED_UP: Final = 1.5
"""Trouble that comes and goes is as severe after so many times what is severe without a break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertChange:
    """Values of one alert instead of its defaults; None, or "", is the default.

    Attributes:
        severity: its gravest one: critical, warning or info.
        lasting: seconds that it lasts before it fires; the key ``for``.
        threshold: beyond it something is wrong; seconds, if it is a duration.
        off: there is no such alert.
    """

    severity: str = ""
    lasting: float | None = None
    threshold: float | None = None
    off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsSettings:
    """The alerts.

    ``packs`` are those that are loaded besides the one that is on. ``clusters``, ``topics`` and ``groups`` are patterns
    of those that have alerts. ``severity_names`` renames severities. ``labels`` and ``namespace`` are those of the
    PrometheusRule, by which an operator selects it.
    """

    packs: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    severity_names: dict[str, str] = field(default_factory=dict)
    rules: dict[str, AlertChange] = field(default_factory=dict)


# Reading and checking.


def changes_of(key: str, tables: object) -> dict[str, AlertChange]:
    """Read ``[alerts.rules.NAME]``.

    Raises:
        ConfigurationError: a name, a key or a value is wrong; the sentence names it, and the fix.
    """
    if not isinstance(tables, Mapping):
        raise ConfigurationError(f"{key} must be a table: write [{key}.IsrwatchBrokerDown]")
    return {name: _change(f"{key}.{name}", _alert(key, name), values) for name, values in tables.items()}


def _alert(key: str, name: str) -> Alert:
    if (alert := ALERTS.get(name)) is not None:
        return alert
    near = get_close_matches(name, ALERTS, n=1)
    others = f"did you mean {near[0]}?" if near else f"the alerts are: {', '.join(ALERTS)}"
    raise ConfigurationError(f"{key}.{name}: no alert is called so; {others}")


def _change(key: str, alert: Alert, values: object) -> AlertChange:
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"{key} must be a table: write [{key}]")
    if unknown := sorted(set(values) - set(_KEYS)):
        raise ConfigurationError(f"unknown key {key}.{unknown[0]}; the keys of an alert are: {', '.join(_KEYS)}")
    off = values.get("off", False)
    if type(off) is not bool:
        raise ConfigurationError(f"{key}.off must be true or false, not {off!r}")
    return AlertChange(
        severity=_severity(f"{key}.severity", values["severity"]) if "severity" in values else "",
        lasting=_lasting(f"{key}.for", alert, values["for"]) if "for" in values else None,
        threshold=_threshold(f"{key}.threshold", alert, values["threshold"]) if "threshold" in values else None,
        off=off,
    )


def _severity(key: str, value: object) -> str:
    if value not in _SEVERITIES:
        raise ConfigurationError(f"{key} is {value!r}; use one of {', '.join(_SEVERITIES)}")
    return str(value)


def _lasting(key: str, alert: Alert, value: object) -> float:
    if alert.lasting is None:
        raise ConfigurationError(f"{key}: this alert does not wait for anything to last; remove the key")
    seconds = seconds_of(key, value)
    if seconds > _LONGEST:
        raise ConfigurationError(f"{key} is {value}; it must be at most 30d")
    return seconds


def _threshold(key: str, alert: Alert, value: object) -> float:
    if alert.threshold is None:
        raise ConfigurationError(f"{key}: this alert has no threshold; remove the key")
    if alert.unit is ThresholdUnit.DURATION:
        return seconds_of(key, value)
    if type(value) not in {int, float} or not 0 <= float(str(value)) < float("inf"):
        raise ConfigurationError(f"{key} is {value!r}; write a number, such as {alert.threshold:g}")
    number = float(str(value))
    if alert.unit is ThresholdUnit.SHARE and not 0 < number < 1:
        raise ConfigurationError(f"{key} is {value!r}; write a share between 0 and 1, such as {alert.threshold:g}")
    return number


def check_alerts(alerts: AlertsSettings) -> None:
    """Refuse packs, patterns, names of severities, labels and a namespace that are none.

    Raises:
        ConfigurationError: one is; the sentence names the key and the fix.
    """
    if unknown := sorted({*alerts.packs} - {*OPT_IN}):
        raise ConfigurationError(f"alerts.packs has {unknown[0]!r}; use some of {', '.join(OPT_IN)}")
    for name in ("clusters", "topics", "groups"):
        check_patterns(f"alerts.{name}", getattr(alerts, name))
    names = alerts.severity_names
    if unknown := sorted(names.keys() - {*_SEVERITIES}):
        raise ConfigurationError(
            f"alerts.severity_names has {unknown[0]!r}; rename one of {', '.join(_SEVERITIES)}, "
            'for example "critical" = "page"'
        )
    if "" in names.values():
        raise ConfigurationError('alerts.severity_names has an empty name; write one, for example "critical" = "page"')
    if wrong := [name for name in names.values() if not _SEVERITY_NAME.fullmatch(name)]:
        raise ConfigurationError(f"alerts.severity_names has {wrong[0]!r}; write letters, digits, - _ and . only")
    shown = [shown_severity(alerts, severity) for severity in _SEVERITIES]
    if several := [name for name in shown if shown.count(name) > 1]:
        raise ConfigurationError(f"alerts.severity_names calls two severities {several[0]!r}; give each its own name")
    _check_manifest(alerts)


def _check_manifest(alerts: AlertsSettings) -> None:
    """Refuse what Kubernetes would refuse in the PrometheusRule."""
    for name, value in alerts.labels.items():
        prefix, _, key = name.rpartition("/")
        if not _LABEL.fullmatch(key) or (prefix and not _DOMAIN.fullmatch(prefix)) or name.startswith("/"):
            raise ConfigurationError(f"alerts.labels has {name!r}, which no label of Kubernetes is called: {_LETTERS}")
        if value and not _LABEL.fullmatch(value):
            raise ConfigurationError(
                f"alerts.labels.{name} is {value!r}, no value of a label of Kubernetes: {_LETTERS}"
            )
    if alerts.namespace and not _NAMESPACE.fullmatch(alerts.namespace):
        raise ConfigurationError(
            f"alerts.namespace is {alerts.namespace!r}; write small letters, digits and -, 63 at most: 'monitoring'"
        )


# Rules and severities of conditions, as configured.


def change_of(alerts: AlertsSettings, condition: Condition) -> tuple[Alert | None, AlertChange]:
    """Return the alert of a condition, None if it has none, with what it has instead of its defaults."""
    for name, alert in ALERTS.items():
        if condition in alert.conditions:
            return alert, alerts.rules.get(name, AlertChange())
    return None, AlertChange()


def rules_of(alerts: AlertsSettings, rules: Mapping[Condition, Rule] = RULES) -> dict[Condition, Rule]:
    """Return rules as configured: when conditions are raised, and how severe they are.

    Of the exporter's conditions only the severity is configured here, their rule waits.
    """
    return {condition: _rule(alerts, condition, rule) for condition, rule in rules.items()}


def _rule(alerts: AlertsSettings, condition: Condition, rule: Rule) -> Rule:
    alert, change = change_of(alerts, condition)
    rule = rule._replace(severity=_changed(alert, change, rule.severity))
    if change.lasting is None or not rule.lasting or alert is None or not alert.of_job:
        return rule
    lasting = round(change.lasting * SECOND)
    adding_up = None if rule.adding_up is None else round(lasting * _ADDED_UP)
    return rule._replace(lasting=lasting, adding_up=adding_up)


def is_on(alerts: AlertsSettings, name: str) -> bool:
    """Return whether an alert is loaded."""
    pack = ALERTS[name].pack
    is_loaded = pack is Pack.ALERTS or pack in alerts.packs
    return is_loaded and not alerts.rules.get(name, AlertChange()).off


def shown_severity(alerts: AlertsSettings, severity: str) -> str:
    """Return the label ``severity`` of a severity: in rules, and in the series of conditions."""
    return str(alerts.severity_names.get(severity, severity))


def _changed(alert: Alert | None, change: AlertChange, severity: Severity) -> Severity:
    """Return a severity as changed: only the gravest one of an alert is, and none becomes graver than that."""
    if alert is None or not change.severity:
        return severity
    chosen = Severity(change.severity)
    return chosen if severity == alert.severity or _rank(severity) > _rank(chosen) else severity


def _rank(severity: Severity) -> int:
    return _SEVERITIES.index(severity)
