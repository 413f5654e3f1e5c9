"""What is sampled: positions, groups, transactions, directories, the metadata quorum, metrics. The newest one counts.

Every sample carries the envelope of ``observations.Observation``. None of it decides what a partition's state is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Final, get_args, get_type_hints

from streaming.contracts.columns import SIGNED, Long, plain_type
from streaming.contracts.identifiers import BrokerId, Micros, Offset, TopicId
from streaming.contracts.observations import Observation, Sample, require

_NUMBERS: Final = frozenset({"int", "long", "double", "timestamp"})


def never_negative(kind: type[Observation]) -> tuple[str, ...]:
    """Return the numbers of samples of one kind that cannot be negative: all but those noted as ``SIGNED``.

    Clients spell all kinds of "unknown" with negative numbers.
    """
    hints, envelope = get_type_hints(kind, include_extras=True), Observation.__dataclass_fields__
    return tuple(
        item.name
        for item in fields(kind)
        if item.name not in envelope
        and plain_type(hints[item.name]) in _NUMBERS
        and SIGNED not in get_args(hints[item.name])
    )


def _refuse_negative(observation: Observation) -> None:
    for name in _NEVER_NEGATIVE[observation.kind]:
        number = getattr(observation, name)
        require(number is None or number >= 0, f"{name} is negative: {number}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOffsetsObserved(Sample):
    """Log positions of one replica, and where it lies. None = not reported.

    All are offsets; the last four are exclusive ends. ``leader_log_end_offset`` is the leader's at the same moment, of
    the leader itself its own. ``log_dir`` and ``size_bytes`` are reported by DescribeLogDirs (KIP-113).
    """

    kind: ClassVar[str] = "replica_offsets"

    topic_id: TopicId
    topic: str
    partition: int
    broker: Annotated[BrokerId, SIGNED, "broker that holds the replica"]
    log_start_offset: Annotated[Offset | None, "offset of the oldest record kept"] = None
    last_stable_offset: Annotated[Offset | None, "end of what read_committed consumers see"] = None
    high_watermark: Annotated[Offset | None, "end of what is committed"] = None
    log_end_offset: Annotated[Offset | None, "offset of the next record"] = None
    leader_log_end_offset: Annotated[Offset | None, "log end offset of the leader at the same time"] = None
    size_bytes: Annotated[Long | None, "size of its log"] = None
    log_dir: Annotated[str | None, "log directory on its broker"] = None

    def __post_init__(self) -> None:
        """Refuse negative offsets and sizes."""
        Observation.__post_init__(self)
        _refuse_negative(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupObserved(Sample):
    """One group, as its coordinator describes it; also one that has neither members nor offsets.

    ``group_protocol`` is classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071), and of a query of Spark,
    which no broker coordinates, spark. ``assignor`` is None while nothing is assigned, and of streams groups;
    ``members`` is None where the coordinator does not describe the group. ``last_progress_at`` is when a query of Spark
    last began or finished a batch, by the clock of the file system of its checkpoint. ``is_unread``: the answer of its
    coordinator has the group, and not what it has committed.
    """

    kind: ClassVar[str] = "group"
    format: ClassVar[int] = 4

    group: Annotated[str, "consumer, share or streams group, or the configured name of a checkpoint"]
    group_protocol: Annotated[str, "classic, consumer, share or streams, or spark"]
    group_state: Annotated[str, "as the coordinator reports it; of spark Active within a minute, or Unknown"]
    members: Annotated[int | None, "members of the group; null where the coordinator does not describe it"] = None
    assignor: Annotated[str | None, "how partitions are assigned; null while none is"] = None
    last_progress_at: Annotated[Micros | None, "when a query of Spark last began or finished a batch"] = None
    coordinator: Annotated[BrokerId, SIGNED, "broker that coordinates it; -1: none, as of spark"]
    is_unread: Annotated[
        bool | None, "true: its coordinator was too late with what it has committed, or refused it; else null"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsetsObserved(Sample):
    """How far a consumer group has come in one partition, with the partition's own positions.

    ``committed_offset`` is the next record the group will read; None while it has committed nothing. ``member`` is the
    client id of the partition's owner. What follows from these is in ``contracts.group_positions``; ``lag`` is reported
    of a share group alone, which commits no offset, as its coordinator counts it, with its ``start_offset``. The
    positions are read before the committed offset, after ``positions_at``. ``lag_seconds`` is for how long the first
    offset that it has not passed could have been read, of a share group the one as far before the end as its lag: the
    source has to remember when that was. ``readable_at`` and ``is_transactional`` are reported where a group stands
    still, as far as that is proven.
    """

    kind: ClassVar[str] = "group_offsets"

    group: str
    group_protocol: Annotated[str | None, "classic, consumer, share or streams, or spark"] = None
    group_state: Annotated[str | None, "as in groups"] = None
    members: Annotated[int | None, "members of the group"] = None
    member: Annotated[
        str | None, "client id of the partition's owner; of a share group, of a member that may read it"
    ] = None
    coordinator: Annotated[
        BrokerId | None, SIGNED, "broker that coordinates the group; -1: none; null in a simulation"
    ] = None
    topic_id: TopicId
    topic: str
    partition: int
    committed_offset: Annotated[
        Offset | None, "next record the group will read; null while it has committed nothing"
    ] = None
    start_offset: Annotated[Offset | None, "of a share group: before it everything is done"] = None
    lag: Offset | None = None
    lag_seconds: Annotated[
        float | None, "for how long the first offset that it has not passed could have been read; null while unknown"
    ] = None
    positions_at: Annotated[Micros | None, SIGNED, "when the leader was asked for its positions, at the earliest"] = (
        None
    )
    log_start_offset: Annotated[Offset | None, "offset of the oldest record kept, just before collected_at"] = None
    last_stable_offset: Annotated[
        Offset | None, "end of what read_committed consumers see, just before collected_at"
    ] = None
    high_watermark: Annotated[Offset | None, "end of what is committed, just before collected_at"] = None
    readable_at: Micros | None = None
    is_transactional: bool | None = None

    def __post_init__(self) -> None:
        """Refuse negative offsets."""
        Observation.__post_init__(self)
        _refuse_negative(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionObserved(Sample):
    """One producer's transaction, as its coordinator reports it (KIP-664).

    ``transaction_partitions`` are written ``orders-0``. ``is_hanging``: a partition has it open and no coordinator
    knows of it, so nothing will ever end it. ``reporter`` is the broker that reports it: its coordinator, or where none
    has it the leader of one of its partitions; None where no broker says that it is over.
    """

    kind: ClassVar[str] = "transaction"

    transactional_id: Annotated[str | None, "transactional id, where a coordinator knows it"] = None
    producer_id: Annotated[Long, "producer id"]
    producer_epoch: Annotated[int, "producer epoch"]
    coordinator: Annotated[BrokerId | None, "broker that coordinates it"] = None
    transaction_state: Annotated[str, "as the coordinator reports it"]
    timeout_ms: Annotated[int | None, "how long it may stay open"] = None
    started_at: Annotated[Micros | None, "when its first partition was added"] = None
    transaction_partitions: Annotated[tuple[str, ...], "partitions in the transaction, such as orders-0"] = ()
    is_hanging: Annotated[bool, "a partition has it open and no coordinator will end it"] = False
    reporter: Annotated[
        BrokerId | None, "broker that reports it: its coordinator, else a leader; null in a simulation"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectoryObserved(Sample):
    """One log directory of one broker (KIP-113, KIP-827). Bytes are None where the broker does not report them."""

    kind: ClassVar[str] = "log_directory"

    broker: Annotated[BrokerId, "broker id"]
    log_dir: Annotated[str, "path on the broker"]
    is_online: Annotated[bool, "whether the broker can use it"]
    hosted_replicas: Annotated[int | None, "replicas in it"] = None
    replica_bytes: Annotated[Long | None, "their size"] = None
    total_bytes: Annotated[Long | None, "size of its volume (KIP-827)"] = None
    usable_bytes: Annotated[Long | None, "free bytes of its volume (KIP-827)"] = None
    is_cordoned: Annotated[bool | None, "no new replica is put into it (KIP-1066); null before Kafka 4.3"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumMemberObserved(Sample):
    """One member of the metadata quorum, as its leader reports it (DescribeQuorum, KIP-836)."""

    kind: ClassVar[str] = "quorum_member"

    node: Annotated[int, "controller or broker id"]
    is_voter: Annotated[bool, "a voter, or an observer"]
    controller: Annotated[int, "leader of the quorum"]
    controller_epoch: Annotated[int, "its raft epoch"]
    high_watermark: Annotated[Offset | None, "end of what is committed to the metadata log"] = None
    log_end_offset: Annotated[Offset | None, "end of this member's log"] = None
    last_fetch_at: Annotated[Micros | None, "time of its last fetch"] = None
    last_caught_up_at: Annotated[Micros | None, "when it last had caught up with the leader, at the latest"] = None
    directory_id: Annotated[str | None, "of its metadata log (KIP-853): a node may be a voter and an observer"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSpeedObserved(Sample):
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

    broker: Annotated[BrokerId, "broker id"]
    response_micros: Annotated[int, "median time of a request that touches no log"]
    slowest_response_micros: Annotated[int, "the longest of the round"]
    followed_leaders: Annotated[int, "leaders that it replicates from, with something to replicate"]
    followed_leaders_behind: Annotated[int, "those of them that it is a round behind of, or was removed by"]
    followers: Annotated[int, "brokers that replicate from it, with something to replicate"]
    followers_behind: Annotated[int, "those of them that are a round behind it, or that it removed"]
    replicas_behind: Annotated[int, "in-sync replicas on it that are a round behind"]
    replicas_out_of_isr: Annotated[int, "replicas on it that were removed from the ISR since it came up"]
    append_micros: Annotated[
        int | None, "mean time of an append for a produce request, by its agent; null: none says it"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetricObserved(Sample):
    """One sample of a broker's own metric, under its JMX-exporter name in lower case (dialect A)."""

    kind: ClassVar[str] = "broker_metric"

    broker: Annotated[BrokerId, "broker id"]
    metric: Annotated[str, "JMX exporter name in lower case: kafka_server_replicamanager_leadercount"]
    metric_value: Annotated[float, SIGNED, "the sample"]


_NEVER_NEGATIVE: Final = {kind.kind: never_negative(kind) for kind in (ReplicaOffsetsObserved, GroupOffsetsObserved)}
