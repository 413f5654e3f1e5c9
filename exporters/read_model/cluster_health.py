"""Health as one answer: of each cluster, and of all that are asked about, healthy, unhealthy or unknown, with reasons.

The one rule for ``isrwatch health``, ``/api/v1/health`` and the metric: nothing is healthy without fresh data, and what
rests on data that are too old leaves a cluster unknown, whatever they say. Pure: a snapshot and a time in, values out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.read_model.cluster_reasons import (
    broker_reasons,
    incident_reasons,
    partition_reasons,
    sample_reasons,
    source_reasons,
)
from exporters.read_model.health_reasons import BLIND, HealthReason, HealthSeverity, ReasonKind, reason_of
from streaming.contracts.observations import SourceKind
from streaming.contracts.sample_tables import LOG_DIRECTORIES, QUORUM_MEMBERS
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES, SOURCE_PROGRESS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot

RESTS_ON: Final = tuple(
    table.name for table in (PARTITION_CHANGES, SOURCE_PROGRESS, INCIDENTS, LOG_DIRECTORIES, QUORUM_MEMBERS)
)
"""The tables without which something could be wrong unnoticed; while state tables are damaged, changes replace them."""
IGNORABLE: Final = tuple(kind for kind in ReasonKind if kind not in BLIND)


class HealthStatus(StrEnum):
    """What can be said."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthBasis:
    """What an answer must rest on, and what it may leave out.

    Attributes:
        max_age_seconds: older data says nothing about now.
        newer_than: the data must be newer than this, UTC microseconds; None: however old ``max_age_seconds`` allows.
        allows_planned: whether a cluster from which announced work keeps brokers away is healthy.
        ignored: reasons that do not count; none of ``BLIND``.
    """

    max_age_seconds: float
    newer_than: int | None = None
    allows_planned: bool = False
    ignored: frozenset[str] = field(default_factory=frozenset)

    def counts(self, reason: HealthReason) -> bool:
        """Return whether a reason keeps a cluster from being healthy."""
        is_allowed = reason.severity is HealthSeverity.PLANNED and self.allows_planned
        return reason.reason in BLIND or not (is_allowed or reason.reason in self.ignored)


class ClusterHealth(NamedTuple):
    """The health of one cluster, and the data that it rests on: up to when they are, and their age."""

    cluster_id: str
    cluster: str
    status: HealthStatus
    observed_until: int | None
    age_seconds: float | None
    reasons: tuple[HealthReason, ...]


class HealthAnswer(NamedTuple):
    """The health of all clusters that are asked about."""

    status: HealthStatus
    clusters: tuple[ClusterHealth, ...]


def health_of(
    clusters: Mapping[str, ClusterSnapshot], unreadable: Mapping[str, str], now: int, basis: HealthBasis
) -> HealthAnswer:
    """Judge clusters.

    Args:
        clusters: by name; without any, nothing is known.
        unreadable: tables that cannot be read, each with the reason.
        now: UTC microseconds; ages are measured from it.
        basis: what the answer must rest on.
    """
    judged = tuple(_judged(cluster, unreadable, now, basis) for _, cluster in sorted(clusters.items()))
    statuses = {each.status for each in judged}
    if HealthStatus.UNHEALTHY in statuses:
        return HealthAnswer(HealthStatus.UNHEALTHY, judged)
    return HealthAnswer(HealthStatus.HEALTHY if statuses == {HealthStatus.HEALTHY} else HealthStatus.UNKNOWN, judged)


def document_of(health: HealthAnswer, basis: HealthBasis) -> dict[str, Any]:
    """Return the answer for JSON, each reason with whether it counts."""
    return {
        "status": health.status,
        "clusters": [
            {
                **each._asdict(),
                "reasons": [{**asdict(reason), "counts": basis.counts(reason)} for reason in each.reasons],
            }
            for each in health.clusters
        ],
    }


def reasons_of(
    cluster: ClusterSnapshot, unreadable: Mapping[str, str], now: int, basis: HealthBasis
) -> tuple[HealthReason, ...]:
    """Return every reason not to call a cluster healthy, each kind at most once, in the order of the kinds."""
    reasons = [
        *_blind_reasons(cluster, unreadable, now, basis),
        *partition_reasons(cluster, now),
        *broker_reasons(cluster, now),
        *sample_reasons(cluster, now),
        *incident_reasons(cluster, now),
        *source_reasons(cluster, now, basis.max_age_seconds),
    ]
    order = list(ReasonKind)
    return tuple(sorted(reasons, key=lambda reason: order.index(reason.reason)))


def _judged(cluster: ClusterSnapshot, unreadable: Mapping[str, str], now: int, basis: HealthBasis) -> ClusterHealth:
    reasons = reasons_of(cluster, unreadable, now, basis)
    return ClusterHealth(
        cluster.cluster.cluster_id,
        cluster.name,
        _status(tuple(filter(basis.counts, reasons)), basis),
        cluster.observed_until,
        cluster.age_seconds(now),
        reasons,
    )


def _status(reasons: tuple[HealthReason, ...], basis: HealthBasis) -> HealthStatus:
    """Return what reasons amount to: while something is unknown, only what fresh data shows is wrong for certain."""
    wrong = [each for each in reasons if each.severity is not HealthSeverity.UNKNOWN]
    if len(wrong) == len(reasons):
        return HealthStatus.UNHEALTHY if wrong else HealthStatus.HEALTHY
    is_of_past = any(each.reason is ReasonKind.NOT_YET_OBSERVED for each in reasons)
    is_certain = any(each.age_seconds is not None and each.age_seconds <= basis.max_age_seconds for each in wrong)
    return HealthStatus.UNHEALTHY if is_certain and not is_of_past else HealthStatus.UNKNOWN


def _blind_reasons(
    cluster: ClusterSnapshot, unreadable: Mapping[str, str], now: int, basis: HealthBasis
) -> Iterator[HealthReason]:
    age, until = cluster.age_seconds(now), cluster.observed_until
    state = cluster.cluster
    if until is None or state.authority is SourceKind.NONE or not state.has_baseline:
        yield from reason_of(ReasonKind.NO_DATA, [cluster.name], str, age_seconds=age)
    elif cluster.is_stale(now, basis.max_age_seconds):
        yield from reason_of(ReasonKind.STALE, [cluster.name], str, since=lambda _: until, age_seconds=age)
    if basis.newer_than is not None and until is not None and until <= basis.newer_than:
        yield from reason_of(ReasonKind.NOT_YET_OBSERVED, [cluster.name], str, since=lambda _: until, age_seconds=age)
    tables = [table for table in RESTS_ON if table in unreadable]
    yield from reason_of(ReasonKind.TABLE_UNREADABLE, tables, lambda table: unreadable[table], age_seconds=age)
