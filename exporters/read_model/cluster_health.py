"""Health as one answer: whether each cluster, and all together, are healthy, unhealthy or unknown, with reasons.

The one rule for ``isrwatch health``, ``/api/v1/health`` and the metric: nothing is healthy without fresh data, and what
rests on data that are too old leaves a cluster unknown, whatever they say. Pure: a snapshot and a time in, values out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.read_model.cluster_samples import member_of
from exporters.read_model.conditions import (
    announced_brokers,
    lost_log,
    offline_directories,
    open_spells,
    volume_of,
    voters_behind,
)
from exporters.read_model.health_reasons import (
    BLIND,
    NOT_YET_OBSERVED,
    SEVERITIES,
    HealthReason,
    HealthSeverity,
    reason_of,
    was_ahead,
)
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.snapshot import SECOND
from streaming.contracts.conditions import OF_BROKERS, RULES, Condition
from streaming.contracts.events import IncidentClass
from streaming.contracts.quorum_members import by_node, replaced
from streaming.contracts.standing import standing
from streaming.contracts.tables import CONDITIONS, PARTITION_CHANGES, SAMPLED_CONDITIONS, SOURCE_PROGRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.conditions import Spell
    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.standing import Standing
    from streaming.contracts.state import PartitionState

RESTS_ON: Final = tuple(table.name for table in (PARTITION_CHANGES, SOURCE_PROGRESS, CONDITIONS, SAMPLED_CONDITIONS))
"""The tables without which something could be wrong unnoticed; while state tables are damaged, changes replace them."""
IGNORABLE: Final = tuple(condition for condition in SEVERITIES if condition not in BLIND)


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
        ignored: conditions that do not count; none of ``BLIND``.
    """

    max_age_seconds: float
    newer_than: int | None = None
    allows_planned: bool = False
    ignored: frozenset[str] = field(default_factory=frozenset)

    def counts(self, reason: HealthReason) -> bool:
        """Return whether a reason keeps a cluster from being healthy."""
        is_allowed = reason.severity is HealthSeverity.PLANNED and self.allows_planned
        return reason.condition in BLIND or not (is_allowed or reason.condition in self.ignored)


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
    clusters: Mapping[str, ClusterSnapshot],
    unreadable: Mapping[str, str],
    now: int,
    basis: HealthBasis,
    not_yet: Mapping[ClusterId, str] = MappingProxyType({}),
) -> HealthAnswer:
    """Judge clusters by name; without any, nothing is known.

    ``unreadable`` has the reason of each table that cannot be read, ``not_yet`` the names of clusters that were asked
    for but not observed by then.
    """
    judged = (
        *(_judged(cluster, unreadable, now, basis) for _, cluster in sorted(clusters.items())),
        *(_not_yet_observed(cluster_id, name) for cluster_id, name in sorted(not_yet.items())),
    )
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


def _not_yet_observed(cluster_id: ClusterId, name: str) -> ClusterHealth:
    """Return the health of a cluster that had not been observed at a moment of the past."""
    reasons = tuple(reason_of(Condition.NO_DATA, [name], str))
    return ClusterHealth(cluster_id, name, HealthStatus.UNKNOWN, None, None, reasons)


def reasons_of(
    cluster: ClusterSnapshot, unreadable: Mapping[str, str], now: int, basis: HealthBasis
) -> tuple[HealthReason, ...]:
    """Return every reason not to call a cluster healthy, each condition once per severity, in the order of those."""
    reasons = [
        *_blind_reasons(cluster, unreadable, now, basis),
        *partition_reasons(cluster, now),
        *broker_reasons(cluster, now),
        *sample_reasons(cluster, now),
        *election_reasons(cluster, now),
        *source_reasons(cluster, now, basis.max_age_seconds),
    ]
    order = list(SEVERITIES)
    return tuple(sorted(reasons, key=lambda reason: order.index(reason.condition)))


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
    is_of_past = any(each.condition == NOT_YET_OBSERVED for each in reasons)
    is_certain = any(each.age_seconds is not None and each.age_seconds <= basis.max_age_seconds for each in wrong)
    return HealthStatus.UNHEALTHY if is_certain and not is_of_past else HealthStatus.UNKNOWN


def _blind_reasons(
    cluster: ClusterSnapshot, unreadable: Mapping[str, str], now: int, basis: HealthBasis
) -> Iterator[HealthReason]:
    age, until = cluster.age_seconds(now), cluster.observed_until
    if cluster.has_no_data:
        yield from reason_of(Condition.NO_DATA, [cluster.name], str, age_seconds=age)
    elif cluster.is_stale(now, basis.max_age_seconds):
        name = (
            cluster.name if (to_come := cluster.ahead_until(now)) is None else f"{cluster.name}: {was_ahead(to_come)}"
        )
        yield from reason_of(Condition.DATA_STALE, [name], str, since=lambda _: until, age_seconds=age)
    if basis.newer_than is not None and until is not None and until <= basis.newer_than:
        yield from reason_of(NOT_YET_OBSERVED, [cluster.name], str, since=lambda _: until, age_seconds=age)
    tables = [table for table in RESTS_ON if table in unreadable]
    yield from reason_of(Condition.TABLE_UNREADABLE, tables, lambda table: unreadable[table], age_seconds=age)


# Reasons from the partitions, the brokers, the quorum and the sources of one cluster.
#
# What the snapshot shows counts at once. The rows of conditions follow with a later commit: they say since when it
# lasts, which incident explains it, and what was planned.


_SINCE: Final = {
    Condition.OFFLINE: "offline_since",
    Condition.UNDER_MIN_ISR: "under_min_isr_since",
    Condition.UNDER_REPLICATED: "under_replicated_since",
}
"""Columns that say since when a partition is in the state. For how long it has been at its minimum only rows say."""
_LACKING: Final = frozenset({Condition.UNDER_REPLICATED, Condition.AT_MIN_ISR, Condition.MIN_ISR_UNKNOWN})
_PLANNED: Final = {
    Condition.OFFLINE: Condition.OFFLINE_PLANNED,
    Condition.UNDER_MIN_ISR: Condition.UNDER_MIN_ISR_PLANNED,
}
_TOPIC_AND_PARTITION: Final = attrgetter("topic", "partition")


def partition_reasons(cluster: ClusterSnapshot, now: int) -> Iterator[HealthReason]:
    """Yield what is wrong with partitions, other than what announced work explains."""
    for condition, partitions in _by_condition(cluster, announced_brokers(cluster, now)).items():
        severity, spells = None, open_spells(cluster, condition)
        if not spells and _are_planned(cluster, condition, partitions):
            severity, spells = HealthSeverity.PLANNED, open_spells(cluster, _PLANNED[condition])
        yield from reason_of(
            condition,
            partitions,
            lambda each: f"{each.topic}-{each.partition}",
            order=_TOPIC_AND_PARTITION,
            since=_shown_since(condition, spells),
            age_seconds=cluster.age_seconds(now),
            severity=severity,
            spells=spells,
            explained_by=_of_missing(cluster, partitions) if condition in _LACKING else (),
            open_incidents=_open_incidents(cluster),
        )


def _shown_since(condition: Condition, spells: Sequence[Spell]) -> Callable[[PartitionState], int | None]:
    """Return what a partition shows of since when a condition lasts; where it is inexact only while there is no row."""
    if condition in _SINCE or not spells:
        return attrgetter(_SINCE.get(condition, "under_replicated_since"))
    return lambda _: None


def _of_missing(cluster: ClusterSnapshot, partitions: Iterable[PartitionState]) -> list[Spell]:
    """Return the rows of the brokers that partitions lack: their incidents explain that redundancy is lost."""
    missing = {broker for each in partitions for broker in _missing(each)}
    return [spell for spell in open_spells(cluster, *OF_BROKERS) if _broker_of(spell) in missing]


def _open_incidents(cluster: ClusterSnapshot) -> dict[str, str]:
    """Return what the open incidents of a cluster are called, by their ids."""
    return {} if cluster.incidents is None else {row["incident_id"]: shown_id(row) for row in cluster.incidents.open}


def _by_condition(cluster: ClusterSnapshot, announced: frozenset[int]) -> dict[Condition, list[PartitionState]]:
    """Return the partitions of each condition, in one pass: at its worst a cluster has 100,000 of them."""
    away: defaultdict[Condition, list[PartitionState]] = defaultdict(list)
    for partition in cluster.unsettled.values():
        if partition.is_diskless:
            continue
        if partition.is_offline:
            away[Condition.OFFLINE].append(partition)
        if partition.is_under_min_isr:
            away[Condition.UNDER_MIN_ISR].append(partition)
        if not partition.is_under_replicated:
            continue
        if partition.min_isr_effective is None:
            away[Condition.MIN_ISR_UNKNOWN].append(partition)
        if announced and is_planned(partition, announced):
            continue
        away[Condition.UNDER_REPLICATED].append(partition)
        if partition.is_at_min_isr:
            away[Condition.AT_MIN_ISR].append(partition)
    return away


def _are_planned(cluster: ClusterSnapshot, condition: Condition, partitions: Sequence[PartitionState]) -> bool:
    """Return whether rows say that partitions fail by plan, and these are such: none has a replica to spare."""
    planned = open_spells(cluster, _PLANNED[condition]) if condition in _PLANNED else []
    if len(partitions) > sum(spell.partitions for spell in planned):
        return False  # the rows do not show all of them yet
    down = frozenset(_brokers_away(cluster))
    return all(down.intersection(each.replicas) and _has_no_spare(each, condition) for each in partitions)


def _has_no_spare(partition: PartitionState, condition: Condition) -> bool:
    needed = 1 if condition is Condition.OFFLINE else partition.min_isr_effective or 0
    return len(partition.replicas) <= needed


def is_planned(partition: PartitionState, announced: frozenset[int]) -> bool:
    """Return whether each replica that is missing from the ISR is on a broker with announced work."""
    missing = _missing(partition)
    return bool(missing) and missing <= announced


def _missing(partition: PartitionState) -> AbstractSet[int]:
    return {*partition.replicas} - {*partition.isr} - {*partition.adding_replicas}


def broker_reasons(cluster: ClusterSnapshot, now: int) -> Iterator[HealthReason]:
    """Yield which brokers are down, or are back and lack replicas in sync; those with announced work are planned.

    Planned is also a voter of the quorum that is behind, and has announced work.
    """
    announced = announced_brokers(cluster, now)
    lacking = {
        number
        for each in cluster.unsettled.values()
        if each.is_under_replicated and not each.is_diskless
        for number in _missing(each)
    }
    age = cluster.age_seconds(now)
    was_down = {_broker_of(spell) for spell in open_spells(cluster, Condition.BROKER_DOWN)}
    down = {*_brokers_away(cluster), *(lacking & was_down)} - announced
    yield from _of_brokers(cluster, Condition.BROKER_DOWN, down, age)
    behind = {int(each.subject) for each in voters_behind(cluster)}
    yield from _of_brokers(
        cluster, Condition.PLANNED_WORK, announced & {*_brokers_away(cluster), *lacking, *behind}, age
    )


def _of_brokers(
    cluster: ClusterSnapshot, condition: Condition, numbers: AbstractSet[int], age: float | None
) -> Iterator[HealthReason]:
    spells = [spell for spell in open_spells(cluster, condition) if _broker_of(spell) in numbers]
    yield from reason_of(
        condition,
        numbers,
        lambda number: f"broker {number}",
        age_seconds=age,
        spells=spells,
        open_incidents=_open_incidents(cluster),
    )


def _broker_of(spell: Spell) -> int | None:
    return int(spell.subject) if spell.subject.isdecimal() else None


def _brokers_away(cluster: ClusterSnapshot) -> Iterator[int]:
    """Yield the brokers that are fenced, and those that are not registered although they hold replicas."""
    for number in cluster.known_brokers():
        broker = cluster.brokers.get(number)
        if broker is None or not broker.is_registered:
            if cluster.counts.hosted.get(number):
                yield number
        elif broker.is_fenced and cluster.is_registered(broker):
            yield number


def sample_reasons(cluster: ClusterSnapshot, now: int) -> Iterator[HealthReason]:
    """Yield which log directories are offline, and which voters are behind, as of the newest samples."""
    rows, directories = cluster.samples, offline_directories(cluster)
    sampled = {(each.broker, each.log_dir): each.collected_at for each in rows.log_directories or ()}
    yield from reason_of(
        Condition.LOG_DIRECTORY_OFFLINE,
        directories,
        lambda each: "{1} of broker {0}".format(*volume_of(each)),
        order=volume_of,
        since=attrgetter("since"),
        age_seconds=_oldest((sampled.get(volume_of(each), each.shown_at) for each in directories), now),
        without_rows={name for each in directories for name in disk_incidents(cluster, volume_of(each)[0])},
    )
    announced = announced_brokers(cluster, now)
    members = rows.quorum_members or ()
    answered = {node: row.collected_at for node, row in by_node(members, member_of).items()}
    gone = replaced(members, member_of)
    behind = {int(each.subject): each for each in voters_behind(cluster)}
    behind = {node: each for node, each in behind.items() if node not in announced}
    yield from reason_of(
        Condition.QUORUM_VOTER_BEHIND,
        behind,
        lambda node: f"voter {node}" + (", whose directory is gone: it runs as an observer" if node in gone else ""),
        since=lambda node: behind[node].since,
        age_seconds=_oldest((answered.get(node, each.shown_at) for node, each in behind.items()), now),
    )


def disk_incidents(cluster: ClusterSnapshot, broker: int) -> list[str]:
    """Return the open incidents that explain that log directories of a broker are offline; no row of these does."""
    rows = () if cluster.incidents is None else cluster.incidents.open
    return [
        shown_id(row)
        for row in rows
        if row["incident_class"] == IncidentClass.DISK_FAILURE and broker in (row["brokers"] or ())
    ]


def election_reasons(cluster: ClusterSnapshot, now: int) -> Iterator[HealthReason]:
    """Yield the unclean elections of late."""
    late = late_elections(cluster)
    spells = [each for each in cluster.conditions if each.condition == Condition.UNCLEAN_ELECTION]
    yield from reason_of(
        Condition.UNCLEAN_ELECTION,
        [(each.since, each.topics) for each in late],
        lambda each: ", ".join(each[1]) or "a partition",
        age_seconds=cluster.age_seconds(now),
        spells=[spell for spell in spells if spell.since in {each.since for each in late}],
    )


def late_elections(cluster: ClusterSnapshot) -> list[Standing]:
    """Return the unclean elections of late: nothing that the snapshot shows is left of them."""
    until, rules = cluster.spells_until, {Condition.UNCLEAN_ELECTION: RULES[Condition.UNCLEAN_ELECTION]}
    spells = (each for each in cluster.conditions if each.condition == Condition.UNCLEAN_ELECTION)
    return [] if until is None else [*standing(spells, until, rules)]


def source_reasons(cluster: ClusterSnapshot, now: int, stale_after_seconds: float) -> Iterator[HealthReason]:
    """Yield whether no controller leads the quorum, or the metadata log is not read any more."""
    if (lost := lost_log(cluster, now, stale_after_seconds)) is not None:
        yield from reason_of(lost.condition, lost.things, str, since=lambda _: lost.since, age_seconds=lost.age_seconds)


def _oldest(moments: Iterable[int], now: int) -> float | None:
    return max((max(0, now - at) / SECOND for at in moments), default=None)
