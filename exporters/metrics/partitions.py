"""The metrics of partitions and replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import (
    OWN_PREFIX,
    Freshness,
    MetricType,
    Number,
    PartitionMetric,
    ReplicaMetric,
    SampleInput,
    TopicView,
    flag,
)
from exporters.read_model.snapshot import SECOND
from streaming.contracts.identifiers import UNSEEN_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.state import PartitionState

LABELS: Final = ("cluster", "topic", "partition")
_PREFIX: Final = f"{OWN_PREFIX}partition_"
_GROWS_BY: Final = {
    **{name: f"{name}_since" for name in ("under_replicated", "under_min_isr", "offline")},
    "unknown": "unobserved_micros",
}
"""Column that starts the clock while an episode is open."""
_UP_TO: Final = "counted up to the newest observation of the cluster's primary source"


def _state(
    name: str, text: str, column: str, value: Callable[[PartitionState, TopicView], Number | None]
) -> PartitionMetric:
    return PartitionMetric(
        name=f"{_PREFIX}{name}", labels=LABELS, help=text, source=f"partition_state.{column}", value=value
    )


def _counter(name: str, text: str) -> PartitionMetric:
    def value(partition: PartitionState, _: TopicView) -> int:
        count: int = getattr(partition, name)
        return count

    return PartitionMetric(
        name=f"{_PREFIX}{name}_total",
        kind=MetricType.COUNTER,
        labels=LABELS,
        help=text,
        freshness=Freshness.NOT_REQUIRED,
        source=f"partition_state.{name}",
        value=value,
    )


def _seconds(name: str, text: str) -> PartitionMetric:
    """Define a counter of the seconds in a state: closed episodes, plus the open one up to the watermark.

    Never past the watermark: an episode may have ended where nothing is observed yet, and a counter that had counted
    further than the episode lasted would have to decrease.
    """

    def value(partition: PartitionState, view: TopicView) -> float:
        return round(view.observed.seconds_in(partition, f"{name}_seconds"), 6)

    return PartitionMetric(
        name=f"{_PREFIX}{name}_seconds_total",
        kind=MetricType.COUNTER,
        labels=LABELS,
        help=text,
        unit="seconds",
        freshness=Freshness.NOT_REQUIRED,
        depends=SampleInput.WATERMARK,
        source=f"partition_state.{name}_seconds, partition_state.{_GROWS_BY[name]}",
        value=value,
    )


def _since(name: str, text: str) -> PartitionMetric:
    """Define a gauge of the begin of an open episode; absent without one."""

    def value(partition: PartitionState, _: TopicView) -> float | None:
        since = getattr(partition, f"{name}_since")
        return None if since is None else since / SECOND

    return PartitionMetric(
        name=f"{_PREFIX}{name}_since_timestamp_seconds",
        labels=LABELS,
        help=text,
        unit="seconds",
        source=f"partition_state.{name}_since",
        value=value,
    )


PARTITION_METRICS: Final = (
    _state("in_sync_replicas", "Replicas in the ISR.", "isr", lambda partition, _: len(partition.isr)),
    _state(
        "replicas",
        "Replicas assigned, those being added or removed included.",
        "replicas",
        lambda partition, _: len(partition.replicas),
    ),
    _state(
        "min_in_sync_replicas",
        "Effective min.insync.replicas: the configured value, at most the replica count; absent while unknown.",
        "min_isr_effective",
        lambda partition, _: partition.min_isr_effective,
    ),
    _state(
        "eligible_leader_replicas",
        "Replicas in the ELR, which may be elected without loss besides the ISR (KIP-966); absent while it is empty.",
        "elr",
        lambda partition, _: len(partition.elr) or None,
    ),
    _state(
        "last_known_leader",
        "Broker id of the last leader, while the ISR is empty (KIP-966); absent otherwise.",
        "last_known_elr",
        lambda partition, _: next(iter(partition.last_known_elr), None),
    ),
    _state(
        "leader",
        "Broker id of the leader; -1 if there is none; absent while the source cannot see which broker it is.",
        "leader",
        lambda partition, _: None if partition.leader == UNSEEN_LEADER else partition.leader,
    ),
    _state(
        "leader_epoch",
        "Leader epoch; absent where the source does not report it.",
        "leader_epoch",
        lambda partition, _: partition.leader_epoch,
    ),
    _state(
        "under_replicated",
        "1 while fewer replicas are in sync than assigned, not counting replicas being added (KIP-352).",
        "is_under_replicated",
        lambda partition, _: flag(partition.is_under_replicated),
    ),
    _state(
        "under_min_isr",
        "1 while writes with acks=all are refused; absent while min ISR is unknown.",
        "is_under_min_isr",
        lambda partition, _: flag(partition.is_under_min_isr),
    ),
    _state(
        "at_min_isr",
        "1 while a replica is missing and the loss of one more stops writes; absent while min ISR is unknown.",
        "is_at_min_isr",
        lambda partition, _: flag(partition.is_at_min_isr),
    ),
    _state(
        "offline",
        "1 while the partition has no leader: neither reads nor writes.",
        "is_offline",
        lambda partition, _: flag(partition.is_offline),
    ),
    _since("offline", "When the partition lost its leader, in seconds since 1970; absent while it has one."),
    _since("under_min_isr", "Since when acks=all writes are refused, in seconds since 1970; absent unless they are."),
    _since("under_replicated", "Since when replicas are missing, in seconds since 1970; absent unless some are."),
    _counter("isr_shrinks", "Changes in which a broker left the ISR."),
    _counter("isr_expands", "Changes in which a broker joined the ISR."),
    _counter("leader_changes", "Changes of the leader."),
    _counter("unclean_elections", "Leaders elected from outside ISR and ELR; committed records may be lost."),
    _counter("missed_changes", "Changes inferred from epoch gaps but never observed."),
    _seconds("under_replicated", f"Time under-replicated, {_UP_TO}."),
    _seconds("under_min_isr", f"Time under min ISR, {_UP_TO}."),
    _seconds("offline", f"Time without a leader, {_UP_TO}."),
    _seconds("unknown", "Time that the partition was not observed: its health is unknown."),
    ReplicaMetric(
        name=f"{OWN_PREFIX}replica_isr_member",
        labels=(*LABELS, "broker"),
        help="1 while the replica is in the ISR, 0 while it is not.",
        source="partition_state.isr, partition_state.replicas",
        value=lambda partition, broker: int(broker in partition.isr),
    ),
    ReplicaMetric(
        name=f"{OWN_PREFIX}replica_elr_member",
        labels=(*LABELS, "broker"),
        help="1 while the replica is in the ELR: it has every committed record, so it may lead once its broker is back "
        "(KIP-966); absent otherwise.",
        source="partition_state.elr",
        value=lambda partition, broker: 1 if broker in partition.elr else None,
    ),
)
