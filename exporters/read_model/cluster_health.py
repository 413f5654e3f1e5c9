"""Health as one answer: whether each cluster, and all together, are healthy, unhealthy or unknown, with reasons.

The one rule for ``isrwatch health``, ``/api/v1/health`` and the metric: nothing is healthy without fresh data, and what
rests on data that are too old leaves a cluster unknown, whatever they say. Pure: a snapshot and a time in, values out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.read_model.cluster_samples import behind_seconds
from exporters.read_model.health_reasons import BLIND, HealthReason, HealthSeverity, ReasonKind, reason_of
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.snapshot import SECOND, is_recovered
from streaming.contracts.events import Severity
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.sample_tables import LOG_DIRECTORIES, QUORUM_MEMBERS
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES, SOURCE_PROGRESS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot, SourceProgress
    from streaming.contracts.state import PartitionState

RESTS_ON: Final = tuple(
    table.name for table in (PARTITION_CHANGES, SOURCE_PROGRESS, INCIDENTS, LOG_DIRECTORIES, QUORUM_MEMBERS)
)
"""The tables without which something could be wrong unnoticed; while state tables are damaged, changes replace them."""
IGNORABLE: Final = tuple(kind for kind in ReasonKind if kind not in BLIND)


class HealthStatus(StrEnum):
    """Health of a cluster as far as it is known."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthBasis:
    """Basis of an answer: what it must rest on, and what it may leave out.

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
    if until is None or state.primary_source is SourceKind.NONE or not state.has_baseline:
        yield from reason_of(ReasonKind.NO_DATA, [cluster.name], str, age_seconds=age)
    elif cluster.is_stale(now, basis.max_age_seconds):
        yield from reason_of(ReasonKind.STALE, [cluster.name], str, since=lambda _: until, age_seconds=age)
    if basis.newer_than is not None and until is not None and until <= basis.newer_than:
        yield from reason_of(ReasonKind.NOT_YET_OBSERVED, [cluster.name], str, since=lambda _: until, age_seconds=age)
    tables = [table for table in RESTS_ON if table in unreadable]
    yield from reason_of(ReasonKind.TABLE_UNREADABLE, tables, lambda table: unreadable[table], age_seconds=age)


# Reasons from the partitions, the brokers, the quorum and the sources of one cluster.


QUORUM_BEHIND_SECONDS: Final = 10.0
"""A voter fetches twice a second: one that lacks records for so long is down, hangs, or is cut off."""
FORGOTTEN_AFTER_SECONDS: Final = 86_400.0
"""A metadata log that has not been read for so long was given up on purpose."""
_PARTITION_KINDS: Final = (
    ReasonKind.UNKNOWN_MIN_ISR,
    ReasonKind.OFFLINE,
    ReasonKind.UNDER_MIN_ISR,
    ReasonKind.UNDER_REPLICATED,
    ReasonKind.AT_MIN_ISR,
    ReasonKind.PLANNED_UNDER_REPLICATION,
)
_TOPIC_AND_PARTITION: Final = attrgetter("topic", "partition")
_BROKER_KINDS: Final = (ReasonKind.BROKER_MISSING, ReasonKind.BROKER_FENCED, ReasonKind.PLANNED_BROKER_OUTAGE)
_SINCE: Final = {
    **dict.fromkeys(_PARTITION_KINDS, "under_replicated_since"),
    ReasonKind.OFFLINE: "offline_since",
    ReasonKind.UNDER_MIN_ISR: "under_min_isr_since",
}


def announced_brokers(cluster: ClusterSnapshot, now: int) -> frozenset[int]:
    """Return the brokers that announced work may keep away at a time."""
    return frozenset(
        number
        for number, broker in cluster.brokers.items()
        if broker.maintenance_until is not None and broker.maintenance_until >= now
    )


def partition_reasons(cluster: ClusterSnapshot, now: int) -> Iterator[HealthReason]:
    """Yield what is wrong with partitions. Offline ones, and those that refuse writes, are never planned."""
    for kind, partitions in _by_kind(cluster, announced_brokers(cluster, now)).items():
        yield from reason_of(
            kind,
            partitions,
            lambda each: f"{each.topic}-{each.partition}",
            order=_TOPIC_AND_PARTITION,
            since=attrgetter(_SINCE[kind]),
            age_seconds=cluster.age_seconds(now),
        )


def _by_kind(cluster: ClusterSnapshot, announced: frozenset[int]) -> dict[ReasonKind, list[PartitionState]]:
    """Return the partitions of each kind of reason, in one pass: at its worst a cluster has 100,000 of them."""
    away: dict[ReasonKind, list[PartitionState]] = {kind: [] for kind in _PARTITION_KINDS}
    for partition in cluster.unsettled.values():
        if partition.is_diskless:
            continue
        if partition.is_offline:
            away[ReasonKind.OFFLINE].append(partition)
        if partition.is_under_min_isr:
            away[ReasonKind.UNDER_MIN_ISR].append(partition)
        if not partition.is_under_replicated:
            continue
        if partition.min_isr_effective is None:
            away[ReasonKind.UNKNOWN_MIN_ISR].append(partition)
        if announced and is_planned(partition, announced):
            away[ReasonKind.PLANNED_UNDER_REPLICATION].append(partition)
            continue
        away[ReasonKind.UNDER_REPLICATED].append(partition)
        if partition.is_at_min_isr:
            away[ReasonKind.AT_MIN_ISR].append(partition)
    return away


def is_planned(partition: PartitionState, announced: frozenset[int]) -> bool:
    """Return whether each replica that is missing from the ISR is on a broker with announced work."""
    missing = {*partition.replicas} - {*partition.isr} - {*partition.adding_replicas}
    return bool(missing) and missing <= announced


def broker_reasons(cluster: ClusterSnapshot, now: int) -> Iterator[HealthReason]:
    """Yield which brokers are not registered although they hold replicas, and which are fenced."""
    announced = announced_brokers(cluster, now)
    away: dict[ReasonKind, list[int]] = {kind: [] for kind in _BROKER_KINDS}
    for number in cluster.known_brokers():
        broker = cluster.brokers.get(number)
        if broker is None or not broker.is_registered:
            kind, is_away = ReasonKind.BROKER_MISSING, bool(cluster.counts.hosted.get(number))
        else:
            kind, is_away = ReasonKind.BROKER_FENCED, bool(broker.is_fenced and cluster.is_registered(broker))
        if is_away:
            away[ReasonKind.PLANNED_BROKER_OUTAGE if number in announced else kind].append(number)
    for kind, numbers in away.items():
        yield from reason_of(kind, numbers, lambda number: f"broker {number}", age_seconds=cluster.age_seconds(now))


def sample_reasons(cluster: ClusterSnapshot, now: int) -> Iterator[HealthReason]:
    """Yield which log directories are offline, and which voters are behind, as of the newest samples."""
    directories = [each for each in cluster.samples.log_directories or () if not each.is_online]
    yield from reason_of(
        ReasonKind.LOG_DIRECTORY_OFFLINE,
        [(each.broker, each.log_dir) for each in directories],
        lambda each: f"{each[1]} of broker {each[0]}",
        age_seconds=_oldest((each.collected_at for each in directories), now),
    )
    members = cluster.samples.quorum_members or ()
    leader = next((each for each in members if each.node == each.controller), None)
    behind = [
        each
        for each in members
        if leader is not None
        and each.is_voter
        and (behind_seconds(each.last_caught_up_at, leader.last_caught_up_at) or 0.0) > QUORUM_BEHIND_SECONDS
    ]
    yield from reason_of(
        ReasonKind.QUORUM_VOTER_BEHIND,
        [(each.node, each.last_caught_up_at) for each in behind],
        lambda each: f"voter {each[0]}",
        since=lambda each: each[1],
        age_seconds=_oldest((each.collected_at for each in behind), now),
    )


def incident_reasons(cluster: ClusterSnapshot, now: int) -> Iterator[HealthReason]:
    """Yield the open incidents of which something harmful remains to be fixed; planned ones are none."""
    rows = () if cluster.incidents is None else cluster.incidents.open
    harmful = [row for row in rows if row["severity"] != Severity.INFO and not is_recovered(row)]
    reasons = reason_of(
        ReasonKind.HARMFUL_INCIDENT,
        [(row["opened_at"], shown_id(row), row["summary"]) for row in harmful],
        lambda each: f"{each[1]}: {each[2]}",
        since=lambda each: each[0],
        age_seconds=cluster.age_seconds(now),
    )
    is_critical = any(row["severity"] == Severity.CRITICAL for row in harmful)
    yield from (replace(each, severity=HealthSeverity.CRITICAL) if is_critical else each for each in reasons)


def source_reasons(cluster: ClusterSnapshot, now: int, stale_after_seconds: float) -> Iterator[HealthReason]:
    """Yield whether the metadata log stands still while its collector reads the brokers, or is not read any more.

    As the alert KafkaNoController does: what else the collector reads is fresh, and the job has applied all it sent.
    """
    logs = [each for each in _of_replication(cluster) if each.state.source_kind is SourceKind.METADATA_LOG]
    ages = {each.state.source: _age(each, now) for each in logs}
    if not ages or min(ages.values()) <= stale_after_seconds:
        return
    youngest, since = min(ages.values()), max(each.state.observed_until or 0 for each in logs)
    collectors = {_collector(name) for name in ages}
    others = [
        _age(each, now)
        for (channel, name), each in cluster.sources.items()
        if channel != Channel.REPLICATION and _collector(name) in collectors
    ]
    applied = all(each.lag.is_query_up and each.lag.behind_bytes == 0 for each in logs)
    if applied and others and min(others) <= stale_after_seconds:
        yield from reason_of(
            ReasonKind.NO_CONTROLLER, [since], lambda _: "metadata quorum", since=lambda at: at, age_seconds=min(others)
        )
    elif youngest <= FORGOTTEN_AFTER_SECONDS and not cluster.is_stale(now, stale_after_seconds):
        yield from reason_of(
            ReasonKind.PRIMARY_SOURCE_LOST, list(ages), str, since=lambda _: since, age_seconds=cluster.age_seconds(now)
        )


def _oldest(moments: Iterable[int], now: int) -> float | None:
    return max((max(0, now - at) / SECOND for at in moments), default=None)


def _of_replication(cluster: ClusterSnapshot) -> list[SourceProgress]:
    return [each for (channel, _), each in cluster.sources.items() if channel == Channel.REPLICATION]


def _age(source: SourceProgress, now: int) -> float:
    until = source.state.observed_until
    return float("inf") if until is None else max(0, now - until) / SECOND


def _collector(source: str) -> str:
    return source.partition(":")[2]
