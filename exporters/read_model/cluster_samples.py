"""The newest samples of one cluster, as values: a row class names the columns of its table that are exposed.

Times are UTC microseconds; None is unknown. What a row means is said by ``streaming.contracts.sample_tables``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import SECOND
from streaming.contracts.quorum_members import Member

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from streaming.contracts.group_readers import GroupOffsetsRow
    from streaming.contracts.state import PartitionState


class ReplicaOffsets(NamedTuple):
    """Log positions of one replica; None was not asked."""

    broker: int
    log_start_offset: int | None
    high_watermark: int | None


PartitionOffsets = dict[int, tuple[ReplicaOffsets, ...]]


class LaggingReplica(NamedTuple):
    """A replica that lacks records which its leader had at the look before (row of ``replica_offsets``)."""

    topic_id: str
    topic: str
    partition: int
    broker: int
    lag: int
    behind_since: int
    seconds_until_caught_up: float | None
    collected_at: int


class TopicSize(NamedTuple):
    """The size of all replicas of a topic whose size is known."""

    topic_id: str
    topic: str
    size_bytes: int
    collected_at: int


class BrokerMetric(NamedTuple):
    """The newest sample of a broker's own metric."""

    broker: int
    metric: str
    metric_value: float
    collected_at: int


class GroupRow(NamedTuple):
    """Row of ``groups``."""

    group: str
    group_protocol: str
    group_state: str
    members: int | None
    last_progress_at: int | None
    coordinator: int
    is_unread: bool | None
    kept_at: int | None
    collected_at: int


class LogDirectoryRow(NamedTuple):
    """Row of ``log_directories``."""

    broker: int
    log_dir: str
    is_online: bool
    replica_bytes: int | None
    total_bytes: int | None
    usable_bytes: int | None
    bytes_per_second: float | None
    seconds_until_full: float | None
    collected_at: int
    is_cordoned: bool | None = None


class QuorumMemberRow(NamedTuple):
    """Row of ``quorum_members``."""

    node: int
    is_voter: bool
    controller: int | None
    log_end_offset: int | None
    last_caught_up_at: int | None
    collected_at: int
    directory_id: str | None = None


def member_of(row: QuorumMemberRow) -> Member:
    """Return what distinguishes a row from others."""
    return Member(row.node, row.directory_id, row.is_voter, row.collected_at, row.last_caught_up_at)


def behind_seconds(caught_up_at: int | None, leader_caught_up_at: int | None) -> float | None:
    """Return since when a member of the quorum lacks something, by its leader's clock, in seconds; None is unknown.

    The leader always has everything: it caught up at the moment of its answer.
    """
    if caught_up_at is None or leader_caught_up_at is None:
        return None
    return max(0, leader_caught_up_at - caught_up_at) / SECOND


class TransactionRow(NamedTuple):
    """Row of ``transactions``."""

    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    timeout_ms: int | None
    started_at: int | None
    transaction_partitions: tuple[str, ...] | None
    is_hanging: bool
    collected_at: int


class TopicSettingsRow(NamedTuple):
    """Row of ``topic_settings``."""

    topic_id: str
    topic: str
    min_isr: int | None
    allows_unclean_election: bool | None
    cleanup_policy: str | None
    leader_throttled_replicas: str | None
    follower_throttled_replicas: str | None
    weaknesses: tuple[str, ...] | None
    role: str | None
    collected_at: int


class BrokerSettingsRow(NamedTuple):
    """Row of ``broker_settings``."""

    broker: int
    leader_throttled_rate: int | None
    follower_throttled_rate: int | None
    replica_lag_time_max_ms: int | None
    broker_session_timeout_ms: int | None
    allows_unclean_election: bool | None
    min_isr: int | None
    collected_at: int


class BrokerFeatureRow(NamedTuple):
    """Row of ``broker_features``."""

    broker: int
    feature: str
    supported_level: int
    finalized_level: int
    collected_at: int


class BrokerSpeedRow(NamedTuple):
    """Row of ``broker_speed``."""

    broker: int
    is_slow: bool | None
    is_overloaded: bool | None
    response_micros: int
    append_micros: int | None
    collected_at: int


class IsrReconciliationRow(NamedTuple):
    """Row of ``isr_reconciliation``."""

    broker: int
    meter: str
    missed: int
    until: int


class ClusterSamples(NamedTuple):
    """The newest samples of one cluster; a table that cannot be read is None.

    Attributes:
        lagging_replicas: of ``replica_offsets`` those that have not caught up.
        broker_offsets_at: when each broker was last asked for the offsets of its replicas.
        topic_sizes: of every topic.
        replica_logs: start, end and size of the log of every replica: columns, because there are so many.
        messages_in: broker and how many records were appended to the logs that it leads, since this process began.
    """

    lagging_replicas: tuple[LaggingReplica, ...] | None = ()
    broker_offsets_at: tuple[tuple[int, int], ...] | None = ()
    topic_sizes: tuple[TopicSize, ...] | None = ()
    replica_logs: pa.Table | None = None
    messages_in: tuple[tuple[int, int], ...] | None = ()
    broker_metrics: tuple[BrokerMetric, ...] | None = ()
    groups: tuple[GroupRow, ...] | None = ()
    group_offsets: tuple[GroupOffsetsRow, ...] | None = ()
    log_directories: tuple[LogDirectoryRow, ...] | None = ()
    quorum_members: tuple[QuorumMemberRow, ...] | None = ()
    transactions: tuple[TransactionRow, ...] | None = ()
    topic_settings: tuple[TopicSettingsRow, ...] | None = ()
    broker_settings: tuple[BrokerSettingsRow, ...] | None = ()
    broker_features: tuple[BrokerFeatureRow, ...] | None = ()
    broker_speed: tuple[BrokerSpeedRow, ...] | None = ()
    isr_reconciliation: tuple[IsrReconciliationRow, ...] | None = ()


NO_SAMPLES: Final = ClusterSamples()


# Remaining work of a reassignment: the rule, from the state of a partition and the newest samples of its logs.


def is_reassigned(partition: PartitionState) -> bool:
    """Return whether a partition has a reassignment that is not complete."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def replicas_to_go(partition: PartitionState) -> list[int]:
    """Return the replicas that are being added and are not in the ISR yet."""
    return [broker for broker in partition.adding_replicas if broker not in partition.isr]


def bytes_to_go(partition: PartitionState, sizes: Mapping[int, int | None]) -> int | None:
    """Return how many bytes the replicas that are being added have yet to copy; None while a size is unknown.

    Compares the sizes of logs, so it counts what a follower need not copy because retention deletes it first.
    """
    waiting = replicas_to_go(partition)
    leader, copies = sizes.get(partition.leader), [sizes.get(broker) for broker in waiting]
    if not waiting:
        return 0
    if leader is None:
        return None
    missing = [None if copy is None else max(0, leader - copy) for copy in copies]
    return None if None in missing else sum(filter(None, missing))
