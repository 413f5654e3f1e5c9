"""The metrics of partitions and replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metric import OWN_PREFIX, Depends, Kind, Number, PartitionMetric, ReplicaMetric, Sight, TopicView, flag
from streaming.contracts.totals import seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporters.snapshot import Partition

LABELS: Final = ("cluster", "topic", "partition")
_PREFIX: Final = f"{OWN_PREFIX}partition_"


def _state(name: str, text: str, value: Callable[[Partition, TopicView], Number | None]) -> PartitionMetric:
    return PartitionMetric(name=f"{_PREFIX}{name}", labels=LABELS, help=text, value=value)


def _counter(name: str, text: str, value: Callable[[Partition, TopicView], Number]) -> PartitionMetric:
    return PartitionMetric(
        name=f"{_PREFIX}{name}_total",
        kind=Kind.COUNTER,
        labels=LABELS,
        help=text,
        sight=Sight.NONE,
        value=value,
    )


def _seconds(name: str, text: str, episodes: Callable[[Partition], tuple[float, int | None]]) -> PartitionMetric:
    """Tell the closed episodes of a state and the open one, up to the watermark and never past it."""

    def value(partition: Partition, view: TopicView) -> float:
        return round(seconds_until(*episodes(partition), view.watermark), 6)

    return PartitionMetric(
        name=f"{_PREFIX}{name}_seconds_total",
        kind=Kind.COUNTER,
        labels=LABELS,
        help=text,
        unit="seconds",
        sight=Sight.NONE,
        depends=Depends.WATERMARK,
        value=value,
    )


PARTITION_METRICS: Final = (
    _state("in_sync_replicas", "Replicas in the ISR.", lambda partition, _: len(partition.isr)),
    _state(
        "replicas",
        "Replicas assigned, those being added or removed included.",
        lambda partition, _: len(partition.replicas),
    ),
    _state(
        "min_in_sync_replicas",
        "Effective min.insync.replicas: the configured value, at most the replica count; absent while unknown.",
        lambda partition, _: partition.min_isr_effective,
    ),
    _state("leader", "Broker id of the leader, -1 for none.", lambda partition, _: partition.leader),
    _state(
        "leader_epoch",
        "Term of leadership; absent where the source cannot see it.",
        lambda partition, _: partition.leader_epoch,
    ),
    _state(
        "under_replicated",
        "1 while fewer replicas are in sync than assigned; replicas being added do not count (KIP-352).",
        lambda partition, _: flag(partition.is_under_replicated),
    ),
    _state(
        "under_min_isr",
        "1 while writes with acks=all are refused; absent while the minimum is unknown.",
        lambda partition, _: flag(partition.is_under_min_isr),
    ),
    _state(
        "at_min_isr",
        "1 while the loss of one more replica stops writes; absent while the minimum is unknown (KIP-427).",
        lambda partition, _: flag(partition.is_at_min_isr),
    ),
    _state(
        "offline",
        "1 while nobody leads: no reads, no writes.",
        lambda partition, _: flag(partition.is_offline),
    ),
    _counter("isr_shrinks", "Changes in which a broker left the ISR.", lambda partition, _: partition.isr_shrinks),
    _counter("isr_expands", "Changes in which a broker joined the ISR.", lambda partition, _: partition.isr_expands),
    _counter("leader_changes", "Changes of the leader.", lambda partition, _: partition.leader_changes),
    _counter(
        "unclean_elections",
        "Leaders elected from outside ISR and ELR: committed records may be lost.",
        lambda partition, _: partition.unclean_elections,
    ),
    _counter(
        "missed_changes",
        "Changes known from the epochs that nobody saw.",
        lambda partition, _: partition.missed_changes,
    ),
    _seconds(
        "under_replicated",
        "Time under-replicated, told up to the newest moment that the cluster's authority has seen.",
        lambda partition: (partition.under_replicated_seconds, partition.under_replicated_since),
    ),
    _seconds(
        "under_min_isr",
        "Time under min ISR, told up to the newest moment that the cluster's authority has seen.",
        lambda partition: (partition.under_min_isr_seconds, partition.under_min_isr_since),
    ),
    _seconds(
        "offline",
        "Time without a leader, told up to the newest moment that the cluster's authority has seen.",
        lambda partition: (partition.offline_seconds, partition.offline_since),
    ),
    _seconds(
        "unknown",
        "Time without sight of this partition: neither healthy nor not.",
        lambda partition: (partition.unknown_seconds, None),
    ),
    ReplicaMetric(
        name=f"{OWN_PREFIX}replica_isr_member",
        labels=(*LABELS, "broker"),
        help="1 while this replica is in the ISR, 0 while it is not: names who is out.",
        value=lambda partition, broker: int(broker in partition.isr),
    ),
)
