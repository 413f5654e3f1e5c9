"""Recording rules: what several rules ask each quarter of a minute, or what reads days of samples.

- The longest time of a partition in a state: over every partition that was in trouble, asked by a page twice and again
  by its text.
- The share of unavailable time: over up to three days, which two alerts and the board of the service level ask.
- Partitions that count, where topics are left out: a page asks for their least number within six hours, which without
  a record is a subquery of 360 evaluations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dashboards.alerts.templates import not_excluded, partitions_in
from dashboards.promql import EVERYWHERE, PREFIX, Scope
from dashboards.signals import changes, clusters, partitions
from dashboards.signals.derived import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.alerts.settings import AlertSettings
    from dashboards.promql import Signal

BUDGET_WINDOWS: Final = ("5m", "30m", "1h", "6h", "3d")
_COUNTED: Final = (
    (clusters.OFFLINE, partitions.TOPIC_OFFLINE),
    (clusters.UNDER_MIN_ISR, partitions.TOPIC_UNDER_MIN_ISR),
)
_LASTING: Final = (partitions.OFFLINE_SECONDS, partitions.UNDER_MIN_ISR_SECONDS)


def recording_rules(settings: AlertSettings) -> list[dict[str, Any]]:
    """Return every recording rule."""
    return [{"record": name, "expr": expression} for name, expression in _records(settings)]


def _records(settings: AlertSettings) -> Iterator[tuple[str, str]]:
    for seconds in _LASTING:
        for window in (settings.flapping_until, settings.flapping_window):
            increase = f"increase({seconds.series(EVERYWHERE, *not_excluded(settings))}[{window}])"
            yield longest(seconds, window), f"max by (cluster) ({increase})"
    for window in BUDGET_WINDOWS:
        yield unavailable_share(window), _unavailable_share(settings, window)
    if settings.excluded_topics:
        for cluster, topic in _COUNTED:
            yield counted(cluster), partitions_in(cluster, topic, settings)


def longest(seconds: Signal, window: str, scope: Scope = EVERYWHERE) -> str:
    """Return the seconds in a state within a window of the partition of a cluster that has most of them."""
    name = seconds.metric.removesuffix("_total")
    return f"cluster:{PREFIX}{name}:max_increase{window}{scope.selector(CLUSTER)}"


def unavailable_share(window: str, scope: Scope = EVERYWHERE) -> str:
    """Return the share of the time of all partitions of a cluster in which they were unavailable, at least."""
    return f"cluster:{PREFIX}unavailable_time:ratio_rate{window}{scope.selector(CLUSTER)}"


def counted(signal: Signal) -> str:
    """Return the number of partitions of a cluster in a state, without excluded topics."""
    return f"cluster:{signal.full_name.replace('cluster_', '')}:sum"


def _unavailable_share(settings: AlertSettings, window: str) -> str:
    """Divide the larger of both times by the time of all: a partition may be offline and under min ISR at once."""
    seconds = changes.UNDER_MIN_ISR_SECONDS
    refused = f"max by (cluster) (rate({seconds.series()}[{window}]))"
    if settings.excluded_topics:
        of_topic = partitions.TOPIC_UNDER_MIN_ISR_SECONDS.series(EVERYWHERE, *not_excluded(settings))
        refused = f"sum by (cluster) (max by (cluster, topic) (rate({of_topic}[{window}])))"
        return f"{refused} / on (cluster) ({clusters.PARTITIONS.now()} > 0)"
    offline = f"max by (cluster) (rate({changes.OFFLINE_SECONDS.series()}[{window}]))"
    return f"(({refused} > {offline}) or {offline}) / on (cluster) ({clusters.PARTITIONS.now()} > 0)"
