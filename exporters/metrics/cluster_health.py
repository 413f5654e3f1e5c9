"""The metric of health: one series per reason, from the rule that ``isrwatch health`` and the API answer by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import OWN_PREFIX, Freshness, JudgedMetric
from exporters.read_model.cluster_health import HealthBasis, reasons_of
from exporters.read_model.health_reasons import BLIND, ReasonKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporters.metrics.metric import Sample
    from exporters.read_model.snapshot import ClusterSnapshot


def _counts(cluster: ClusterSnapshot, unreadable: Mapping[str, str], now: int, stale_after: float) -> Iterator[Sample]:
    """Count what each reason is true of; while the state is stale, only what is certain without it."""
    basis = HealthBasis(max_age_seconds=stale_after)
    counts = {each.reason: each.count for each in reasons_of(cluster, unreadable, now, basis)}
    if cluster.is_stale(now, stale_after):
        judged = BLIND | ({ReasonKind.NO_CONTROLLER} & counts.keys())
    else:
        judged = frozenset(ReasonKind)
    for kind in ReasonKind:
        if kind in judged and kind is not ReasonKind.NOT_YET_OBSERVED:
            yield (cluster.name, kind.value), counts.get(kind, 0)


_SOURCE: Final = (
    "partition_state.is_offline, partition_state.is_under_min_isr, partition_state.is_under_replicated, "
    "partition_state.is_at_min_isr, partition_state.min_isr_effective, broker_state.is_registered, "
    "broker_state.is_fenced, broker_state.maintenance_until, "
    "log_directories.is_online, quorum_members.last_caught_up_at, incidents.severity, source_progress.observed_until"
)
HEALTH_METRICS: Final = (
    JudgedMetric(
        name=f"{OWN_PREFIX}cluster_unhealthy",
        labels=("cluster", "reason"),
        help="What keeps the cluster from being healthy, by reason: how many partitions, brokers or other things; "
        "0 for none. While the state is stale only what can be said without it.",
        freshness=Freshness.NOT_REQUIRED,
        source=_SOURCE,
        samples=_counts,
    ),
)
