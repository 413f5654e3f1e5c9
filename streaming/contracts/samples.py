"""What is sampled: positions, groups, transactions, directories, the metadata quorum, metrics. The newest one counts.

Every sample carries the envelope of ``observations.Observation``. None of it decides what a partition's state is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from streaming.contracts.columns import sampled
from streaming.contracts.identifiers import BrokerId, Micros, Offset, TopicId
from streaming.contracts.observations import Channel, Observation, require


def _not_negative(observation: Observation, *names: str) -> None:
    """Refuse negative offsets and sizes: clients spell all kinds of "unknown" with them."""
    for name in names:
        offset = getattr(observation, name)
        require(offset is None or offset >= 0, f"{name} is negative: {offset}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOffsetsObserved(Observation):
    """Log positions of one replica, and where it lies. None = not reported.

    All are offsets; the last four are exclusive ends. ``leader_log_end_offset`` is the leader's at the same moment, of
    the leader itself its own. ``log_dir`` and ``size_bytes`` are reported by DescribeLogDirs (KIP-113).
    """

    kind: ClassVar[str] = "replica_offsets"
    channel: ClassVar[Channel] = Channel.OFFSETS

    topic_id: TopicId
    topic: str
    partition: int
    broker: BrokerId = field(metadata=sampled("int", "broker that holds the replica"))
    log_start_offset: Offset | None = field(default=None, metadata=sampled("long", "offset of the oldest record kept"))
    last_stable_offset: Offset | None = field(
        default=None, metadata=sampled("long", "end of what read_committed consumers see")
    )
    high_watermark: Offset | None = field(default=None, metadata=sampled("long", "end of what is committed"))
    log_end_offset: Offset | None = field(default=None, metadata=sampled("long", "offset of the next record"))
    leader_log_end_offset: Offset | None = field(
        default=None, metadata=sampled("long", "log end offset of the leader at the same time")
    )
    size_bytes: int | None = field(default=None, metadata=sampled("long", "size of its log"))
    log_dir: str | None = field(default=None, metadata=sampled("string", "log directory on its broker"))

    def __post_init__(self) -> None:
        """Refuse negative offsets and sizes."""
        Observation.__post_init__(self)
        _not_negative(self, "log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset")
        _not_negative(self, "leader_log_end_offset", "size_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupObserved(Observation):
    """One group, as its coordinator describes it; also one that has neither members nor offsets.

    ``group_protocol`` is classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071), and of a query of Spark,
    which no broker coordinates, spark. ``assignor`` is None while nothing is assigned, and of streams groups;
    ``members`` is None where the coordinator does not describe the group. ``last_progress_at`` is when a query of Spark
    last began or finished a batch, by the clock of the file system of its checkpoint.
    """

    kind: ClassVar[str] = "group"
    format: ClassVar[int] = 4
    channel: ClassVar[Channel] = Channel.OFFSETS

    group: str = field(
        metadata=sampled("string", "consumer, share or streams group, or the configured name of a checkpoint")
    )
    group_protocol: str = field(metadata=sampled("string", "classic, consumer, share or streams, or spark"))
    group_state: str = field(
        metadata=sampled("string", "as the coordinator reports it; of spark Active within a minute, or Unknown")
    )
    members: int | None = field(
        default=None, metadata=sampled("int", "members of the group; null where the coordinator does not describe it")
    )
    assignor: str | None = field(
        default=None, metadata=sampled("string", "how partitions are assigned; null while none is")
    )
    last_progress_at: Micros | None = field(
        default=None, metadata=sampled("timestamp", "when a query of Spark last began or finished a batch")
    )
    coordinator: BrokerId = field(metadata=sampled("int", "broker that coordinates it; -1: none, as of spark"))

    def __post_init__(self) -> None:
        """Refuse a group without a name."""
        Observation.__post_init__(self)
        require(bool(self.group), "group is empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsetsObserved(Observation):
    """How far a consumer group has come in one partition, beside the partition's own positions.

    ``committed_offset`` is the next record the group will read; None while it has committed nothing. ``member`` is the
    client id of the partition's owner. Lag follows from these in ``contracts.health``; ``lag`` is reported of a share
    group alone, which commits no offset, as its coordinator counts it. The positions are read before the committed
    offset, so lag is never too large; it is too small by what was written in between, at most.
    ``lag_seconds`` is for how long the first record that it has not read could have been read: the source has to
    remember when that was.
    """

    kind: ClassVar[str] = "group_offsets"
    channel: ClassVar[Channel] = Channel.OFFSETS

    group: str
    group_protocol: str | None = None
    group_state: str | None = None
    members: int | None = None
    member: str | None = None
    coordinator: BrokerId | None = None
    topic_id: TopicId
    topic: str
    partition: int
    committed_offset: Offset | None = None
    lag: Offset | None = None
    lag_seconds: float | None = None
    log_start_offset: Offset | None = None
    last_stable_offset: Offset | None = None
    high_watermark: Offset | None = None

    def __post_init__(self) -> None:
        """Refuse a group without a name, and negative offsets."""
        Observation.__post_init__(self)
        require(bool(self.group), "group is empty")
        _not_negative(self, "committed_offset", "lag", "lag_seconds")
        _not_negative(self, "log_start_offset", "last_stable_offset", "high_watermark")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionObserved(Observation):
    """One producer's transaction, as its coordinator reports it (KIP-664).

    ``transaction_partitions`` are written ``orders-0``. ``is_hanging``: a partition has it open and no coordinator
    knows of it, so nothing will ever end it. ``reporter`` is the broker that reports it: its coordinator, or where none
    has it the leader of one of its partitions; None where nobody says that it is over.
    """

    kind: ClassVar[str] = "transaction"
    channel: ClassVar[Channel] = Channel.OFFSETS

    transactional_id: str | None = field(
        default=None, metadata=sampled("string", "transactional id, where a coordinator knows it")
    )
    producer_id: int = field(metadata=sampled("long", "producer id"))
    producer_epoch: int = field(metadata=sampled("int", "producer epoch"))
    coordinator: BrokerId | None = field(default=None, metadata=sampled("int", "broker that coordinates it"))
    transaction_state: str = field(metadata=sampled("string", "as the coordinator reports it"))
    timeout_ms: int | None = field(default=None, metadata=sampled("int", "how long it may stay open"))
    started_at: Micros | None = field(default=None, metadata=sampled("timestamp", "when its first partition was added"))
    transaction_partitions: tuple[str, ...] = field(
        default=(), metadata=sampled("string[]", "partitions in the transaction, such as orders-0", nullable=True)
    )
    is_hanging: bool = field(
        default=False, metadata=sampled("boolean", "a partition has it open and no coordinator will end it")
    )
    reporter: BrokerId | None = field(
        default=None,
        metadata=sampled("int", "broker that reports it: its coordinator, else a leader; null in a simulation"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectoryObserved(Observation):
    """One log directory of one broker (KIP-113, KIP-827). Bytes are None where the broker does not report them."""

    kind: ClassVar[str] = "log_directory"
    channel: ClassVar[Channel] = Channel.OFFSETS

    broker: BrokerId = field(metadata=sampled("int", "broker id"))
    log_dir: str = field(metadata=sampled("string", "path on the broker"))
    is_online: bool = field(metadata=sampled("boolean", "whether the broker can use it"))
    hosted_replicas: int | None = field(default=None, metadata=sampled("int", "replicas in it"))
    replica_bytes: int | None = field(default=None, metadata=sampled("long", "their size"))
    total_bytes: int | None = field(default=None, metadata=sampled("long", "size of its volume (KIP-827)"))
    usable_bytes: int | None = field(default=None, metadata=sampled("long", "free bytes of its volume (KIP-827)"))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumMemberObserved(Observation):
    """One member of the metadata quorum, as its leader reports it (DescribeQuorum, KIP-836)."""

    kind: ClassVar[str] = "quorum_member"
    channel: ClassVar[Channel] = Channel.OFFSETS

    node: int = field(metadata=sampled("int", "controller or broker id"))
    is_voter: bool = field(metadata=sampled("boolean", "a voter, or an observer"))
    controller: int = field(metadata=sampled("int", "leader of the quorum", nullable=True))
    controller_epoch: int = field(metadata=sampled("int", "its raft epoch", nullable=True))
    high_watermark: Offset | None = field(
        default=None, metadata=sampled("long", "end of what is committed to the metadata log")
    )
    log_end_offset: Offset | None = field(default=None, metadata=sampled("long", "end of this member's log"))
    last_fetch_at: Micros | None = field(default=None, metadata=sampled("timestamp", "time of its last fetch"))
    last_caught_up_at: Micros | None = field(
        default=None, metadata=sampled("timestamp", "when it last had caught up with the leader")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSpeedObserved(Observation):
    """How fast one broker responded in a round, and with which others replication was behind.

    ``response_micros`` is the median time of a request that touches no log, ``slowest_response_micros`` the longest.
    ``followed_leaders`` are those that it replicates from, ``followers`` those that replicate from it; a pair of a
    leader and a follower counts if something was written to its partitions since the round before, or it is behind. It
    is behind if a replica lacks what its leader had in the round before, or was removed from the ISR since its broker
    came up. ``append_micros`` is how long the broker takes to append the records of a produce request to its log, the
    mean since the scrape of its agent before the newest one; None without a recent one, or with too few requests.
    """

    kind: ClassVar[str] = "broker_speed"
    format: ClassVar[int] = 4
    channel: ClassVar[Channel] = Channel.OFFSETS

    broker: BrokerId = field(metadata=sampled("int", "broker id"))
    response_micros: int = field(metadata=sampled("int", "median time of a request that touches no log"))
    slowest_response_micros: int = field(metadata=sampled("int", "the longest of the round"))
    followed_leaders: int = field(
        metadata=sampled("int", "leaders that it replicates from, with something to replicate")
    )
    followed_leaders_behind: int = field(
        metadata=sampled("int", "those of them that it is a round behind of, or was removed by")
    )
    followers: int = field(metadata=sampled("int", "brokers that replicate from it, with something to replicate"))
    followers_behind: int = field(
        metadata=sampled("int", "those of them that are a round behind it, or that it removed")
    )
    replicas_behind: int = field(metadata=sampled("int", "in-sync replicas on it that are a round behind"))
    replicas_out_of_isr: int = field(
        metadata=sampled("int", "replicas on it that were removed from the ISR since it came up")
    )
    append_micros: int | None = field(
        default=None,
        metadata=sampled("int", "mean time of an append for a produce request, by its agent; null: none says it"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetricObserved(Observation):
    """One sample of a broker's own metric, under its JMX-exporter name in lower case (dialect A)."""

    kind: ClassVar[str] = "broker_metric"
    channel: ClassVar[Channel] = Channel.METRICS

    broker: BrokerId = field(metadata=sampled("int", "broker id"))
    metric: str = field(
        metadata=sampled("string", "JMX exporter name in lower case: kafka_server_replicamanager_leadercount")
    )
    metric_value: float = field(metadata=sampled("double", "the sample"))
