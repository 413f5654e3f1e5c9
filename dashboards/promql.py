"""A signal and the PromQL it renders: present value, last known value, increase, rate.

Knows PromQL and Grafana's unit ids, no metric by name.

Every expression first aggregates to one value per identity (cluster, topic, partition...): the maximum, or the minimum
of ages. Two exporters of the same tables, or one that moved to another address, therefore never double a number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "kafka_replication_"


class SignalType(StrEnum):
    """Type of a metric: only a counter has a rate."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Unit(StrEnum):
    """Grafana's unit ids."""

    COUNT = "short"
    BARE = "none"
    SECONDS = "s"
    """For what takes less than a minute, such as a request."""
    DURATION = "dtdhms"
    """Days, then hours, minutes and seconds as on a clock: 00:02:10."""
    MILLISECONDS = "ms"
    PER_MINUTE = "suffix:/min"
    SHARE = "percentunit"
    PERCENT = "percent"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"


@dataclass(frozen=True, slots=True)
class Scope:
    """Selects series: one PromQL matcher per label, applied to signals that have the label."""

    matchers: Mapping[str, str] = field(default_factory=dict)

    def selector(self, labels: tuple[str, ...], *more: str) -> str:
        """Return the matchers of these labels in braces; "" if there is none."""
        matchers = [*(self.matchers[label] for label in labels if label in self.matchers), *more]
        return "{" + ", ".join(matchers) + "}" if matchers else ""


EVERYWHERE: Final = Scope()


def quoted(text: str) -> str:
    """Return a string of PromQL: whatever is in it stays in it."""
    escaped = "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text.replace("\\", "\\\\"))
    return '"' + escaped.replace('"', '\\"') + '"'


def of_variable(variable: str) -> str:
    """Return the matcher of what a variable of a board, which is called as its label, has.

    Grafana writes a name as a regular expression there, with nothing escaped for the quotes around it: hence those of
    raw strings. A name that has one itself cannot be chosen (:data:`CHOOSABLE`).
    """
    return f"{variable}=~`${{{variable}:regex}}`"


EVERYTHING: Final = "(?s:.*)"
"""The value of a variable of which everything is chosen: the empty group, too, and names with line ends."""
CHOOSABLE: Final = "/^[^`]*$/"
"""The values that a variable offers, as Grafana writes a regular expression."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One metric: its title, its meaning to an operator, and its PromQL.

    Metrics of the exporter are derived from its catalogue: ``dashboards.signals.derived``.

    Attributes:
        name: title on a panel; "" if each panel has its own.
        metric: name without the prefix.
        meaning: what it measures, why it matters, what to do.
        labels: the labels that identify one series.
        kind: gauge or counter.
        unit: of the metric itself; rates are per minute.
        copies: aggregation over exporters that expose the same series: max, or min for ages.
        prefix: of the program that exposes it.
    """

    name: str
    metric: str
    meaning: str
    labels: tuple[str, ...] = field(kw_only=True)
    kind: SignalType = field(default=SignalType.GAUGE, kw_only=True)
    unit: Unit = field(default=Unit.COUNT, kw_only=True)
    copies: str = field(default="max", kw_only=True)
    prefix: str = field(default=PREFIX, kw_only=True)

    @property
    def full_name(self) -> str:
        """The name of the metric as exposed."""
        return self.prefix + self.metric

    def series(self, scope: Scope = EVERYWHERE, *more: str) -> str:
        """Return the selector of the raw series; ``more`` are further PromQL matchers."""
        return self.full_name + scope.selector(self.labels, *more)

    def now(self, scope: Scope = EVERYWHERE, *more: str, by: tuple[str, ...] | None = None) -> str:
        """Return the present value: one series per identity, or summed by fewer labels."""
        return self._summed(f"{self.copies} by ({_names(self.labels)}) ({self.series(scope, *more)})", by)

    def last_known(self, window: str, scope: Scope = EVERYWHERE) -> str:
        """Return the newest value within a window, also of series that have disappeared."""
        return f"{self.copies} by ({_names(self.labels)}) (last_over_time({self.series(scope)}[{window}]))"

    def increase(self, window: str, scope: Scope = EVERYWHERE, *more: str, by: tuple[str, ...] | None = None) -> str:
        """Return the increase over a window. Counters only."""
        increase = (
            f"{self.copies} by ({_names(self.labels)}) (increase({self._counter().series(scope, *more)}[{window}]))"
        )
        return self._summed(increase, by)

    def per_minute(self, window: str, scope: Scope = EVERYWHERE, *, by: tuple[str, ...] | None = None) -> str:
        """Return the rate per minute, averaged over a window. Counters only."""
        rate = f"{self.copies} by ({_names(self.labels)}) (rate({self._counter().series(scope)}[{window}]))"
        return "60 * " + self._summed(rate, by)

    def _counter(self) -> Signal:
        if self.kind is not SignalType.COUNTER:
            raise AssertionError(f"{self.full_name} is not a counter and has no rate")
        return self

    def _summed(self, expression: str, by: tuple[str, ...] | None) -> str:
        if by is None or by == self.labels:
            return expression
        return f"sum by ({_names(by)}) ({expression})" if by else f"sum({expression})"


def _names(labels: tuple[str, ...]) -> str:
    return ", ".join(labels)
