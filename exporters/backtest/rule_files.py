"""Rules as Prometheus reads them, and which of them the recorded past can judge.

A rule can be judged if every metric that it reads comes from tables whose past is kept: from the change log. Samples,
such as offsets and groups, replace each other. Of conditions those have a past that the job writes as spells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import yaml

from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.metric import Freshness
from streaming.contracts.conditions import RULES
from streaming.contracts.sampled_conditions import SAMPLED_RULES
from streaming.contracts.state import BrokerState, ClusterState
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, PARTITION_CHANGES, PARTITION_STATE_TABLE
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from exporters.metrics.metric import Metric

_FROM_CHANGES: Final = {
    PARTITION_CHANGES.name: frozenset(PARTITION_CHANGES.column_names()),
    PARTITION_STATE_TABLE.name: frozenset(PARTITION_STATE_TABLE.column_names()),
    # Of these tables, what else they have is added up by the job, and only its newest values are there.
    BROKER_STATE_TABLE.name: frozenset({*BrokerState._fields, "isr_departures"}),
    CLUSTER_STATE_TABLE.name: frozenset(ClusterState._fields),
}
_FRESHNESS: Final = frozenset({Freshness.STATE, Freshness.NOT_REQUIRED})
_METRICS: Final = {metric.name: metric for metric in CATALOGUE}
CONDITION: Final = "kafka_replication_condition_since_seconds"
_CONDITIONS: Final = re.compile(rf'{CONDITION}\{{[^}}]*?\bcondition=~?"([\w|]+)"')
_KEPT: Final = {*RULES, *SAMPLED_RULES}
"""The conditions of which tables have the past."""
_OF_RULES: Final = frozenset({"ALERTS", "ALERTS_FOR_STATE"})
# Replaced by a space, in this order: what may contain words that are no metrics.
_NOT_NAMES: Final = tuple(
    map(
        re.compile,
        (
            r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`""",
            r"#.*",
            r"\{[^}]*\}|\[[^\]]*\]",
            r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)",
            r"\b[a-zA-Z_:][\w:]*\s*(?=\()",  # functions, and aggregations of all labels
        ),
    )
)
_NAME: Final = re.compile(r"(?<![\w.:])[a-zA-Z_:][\w:]*")
_WORDS: Final = frozenset(
    {"and", "or", "unless", "offset", "bool", "inf", "nan", "atan2", "group_left", "group_right", "start", "end"}
    | {"sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk", "quantile"}
)
_NAME_BY_PATTERN: Final = re.compile(r"__name__")
# Functions whose value is a moment of promtool's clock; a matrix of it has no sum.
_CLOCK: Final = re.compile(
    r"\btime\(\s*\)|\btimestamp\([^()]*\)"
    r"|\bALERTS_FOR_STATE\b(?:\s*\{[^}]*\})?(?:\s+offset\s+-?\w+)?(?!\s*\[)"
)
_CALENDAR: Final = re.compile(r"\b(?:hour|minute|month|year|day_of_week|day_of_month|day_of_year|days_in_month)\(\s*\)")


@dataclass(frozen=True)
class RuleFile:
    """One file of rules, in Prometheus' own format or as a PrometheusRule of Kubernetes."""

    path: Path
    groups: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> RuleFile:
        """Read a file.

        Raises:
            ConfigurationError: it cannot be read, or holds no rules.
        """
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigurationError(f"cannot read the rules {path}:", str(error)) from error
        body = document.get("spec", document) if isinstance(document, dict) else None
        groups = body.get("groups") if isinstance(body, dict) else None
        if not isinstance(groups, list) or not all(
            isinstance(group, dict) and isinstance(group.get("rules"), list) for group in groups
        ):
            raise ConfigurationError(
                f"{path} holds no rules; it must have groups, each with rules, as promtool check rules wants them"
            )
        return cls(path, groups)

    def rules(self) -> Iterator[dict[str, Any]]:
        """Yield every rule, in order."""
        for group in self.groups:
            yield from group["rules"]


class Judgement:
    """Rules of some files that the recorded past can judge, and reasons why not the others."""

    def __init__(self, files: Iterable[RuleFile]) -> None:
        self._rules = [rule for file in files for rule in file.rules()]
        self._recorded = {str(rule["record"]): str(rule["expr"]) for rule in self._rules if "record" in rule}

    @cached_property
    def alerts(self) -> list[str]:
        """The alerts that can be judged, by name, in order."""
        judged = [str(rule["alert"]) for rule in self._rules if "alert" in rule and not self._why_not(rule)]
        return list(dict.fromkeys(judged))

    @cached_property
    def not_judged(self) -> dict[str, str]:
        """The alerts that cannot be judged, each with the reason."""
        reasons = {str(rule["alert"]): self._why_not(rule) for rule in self._rules if "alert" in rule}
        return {name: why for name, why in reasons.items() if why}

    @cached_property
    def metrics(self) -> frozenset[str]:
        """The metrics that the alerts which can be judged read, also by way of recording rules."""
        read = (self._read(str(rule["expr"])) for rule in self._rules if rule.get("alert") in self.alerts)
        return frozenset().union(*read) & _METRICS.keys()

    def is_needed(self, rule: Mapping[str, Any]) -> bool:
        """Return whether a rule is an alert that can be judged, or may be read by one."""
        return rule.get("alert") in self.alerts if "alert" in rule else not self._why_not(rule)

    def _why_not(self, rule: Mapping[str, Any]) -> str:
        expression = str(rule["expr"])
        if _NAME_BY_PATTERN.search(expression):
            return "selects metrics by a pattern"
        if _CALENDAR.search(expression):
            return "asks for the time of day or the date"
        names = sorted(self._read(expression) - _OF_RULES)
        if foreign := [name for name in names if name not in _METRICS]:
            return f"reads {foreign[0]}, which isrwatch export does not expose"
        if passing := [condition for condition in _conditions_in(expression) if condition not in _KEPT]:
            return f"reads the condition {passing[0]}, whose past no table keeps"
        of_conditions = {CONDITION} if _CONDITIONS.search(expression) else set()
        if passing := [name for name in names if not has_history(_METRICS[name]) and name not in of_conditions]:
            return f"reads {passing[0]}, whose past no table keeps"
        return "" if names else "reads no metric"

    def _read(self, expression: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        names = set(names_in(expression))
        for name in names & self._recorded.keys() - seen:
            names |= self._read(self._recorded[name], seen | {name})
        return frozenset(names - self._recorded.keys())


def _conditions_in(expression: str) -> Iterator[str]:
    """Yield the conditions that an expression selects."""
    for selected in _CONDITIONS.findall(expression):
        yield from selected.split("|")


def has_history(metric: Metric) -> bool:
    """Return whether all that a metric is made of is in the change log."""
    columns = (column.strip().partition(".") for column in metric.source.split(","))
    is_kept = all(column in _FROM_CHANGES.get(table, ()) for table, _, column in columns)
    return is_kept and metric.freshness in _FRESHNESS


def names_in(expression: str) -> list[str]:
    """Return the names of the metrics that an expression reads.

    >>> names_in('sum by (cluster) (rate(a_total{b="c"}[5m])) > on (cluster) group_left () d and max(time() - e)')
    ['a_total', 'd', 'e']
    """
    for pattern in _NOT_NAMES:
        expression = pattern.sub(" ", expression)
    names = _NAME.findall(expression)
    return [name for name in dict.fromkeys(names) if name.lower() not in _WORDS]


def at_another_time(expression: str, seconds: float) -> str:
    """Return an expression that reads the clock so many seconds ahead: promtool's tests begin in 1970.

    >>> at_another_time("time() - a > 60", 1000.0)
    '(time() + 1000.0) - a > 60'
    >>> at_another_time("time() - timestamp(a) > 60", 1000.0)
    '(time() + 1000.0) - (timestamp(a) + 1000.0) > 60'
    """
    return _CLOCK.sub(lambda moment: f"({moment[0]} + {seconds})", expression)
