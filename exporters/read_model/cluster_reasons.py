"""What is wrong with the partitions, the brokers, the quorum and the sources of one cluster, as reasons."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from exporters.read_model.cluster_samples import behind_seconds
from exporters.read_model.health_reasons import HealthReason, HealthSeverity, ReasonKind, reason_of
from exporters.read_model.incidents import is_recovered
from exporters.read_model.snapshot import SECOND
from streaming.contracts.events import Severity
from streaming.contracts.observations import Channel, SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporters.read_model.snapshot import ClusterSnapshot, SourceProgress
    from streaming.contracts.state import PartitionState

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
    """Yield the open incidents of which something harmful is left to mend; planned ones are none."""
    rows = () if cluster.incidents is None else cluster.incidents.open
    harmful = [row for row in rows if row["severity"] != Severity.INFO and not is_recovered(row)]
    reasons = reason_of(
        ReasonKind.HARMFUL_INCIDENT,
        [(row["opened_at"], row["incident_id"], row["summary"]) for row in harmful],
        lambda each: f"{each[1]}: {each[2]}",
        since=lambda each: each[0],
        age_seconds=cluster.age_seconds(now),
    )
    is_critical = any(row["severity"] == Severity.CRITICAL for row in harmful)
    yield from (replace(each, severity=HealthSeverity.CRITICAL) if is_critical else each for each in reasons)


def source_reasons(cluster: ClusterSnapshot, now: int, stale_after_seconds: float) -> Iterator[HealthReason]:
    """Yield whether the metadata log stands still while its collector reads the brokers, or is not read any more.

    As the alert KafkaNoController does: what the collector reads besides is fresh, and the job has applied all it sent.
    """
    logs = [each for each in _of_replication(cluster) if each.state.authority is SourceKind.METADATA_LOG]
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
