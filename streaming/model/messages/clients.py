"""A client asks a broker who leads and who coordinates (apis 3 and 10), and what every request carries. Values only."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import NO_LEADER
from streaming.model.constants import Error

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
    from streaming.model.storage.batch import Batch
    from streaming.model.storage.log import EpochEntry
    from streaming.model.storage.producer_state import AbortedTransaction

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"


class Header(NamedTuple):
    """Sender of a request, and the number that the answer repeats."""

    sender: BrokerId
    correlation_id: int


class RequestTimeout(NamedTuple):
    """Timer: a request had ``request.timeout.ms`` to be answered."""

    correlation_id: int


class RetryDue(NamedTuple):
    """Timer: ``retry.backoff.ms`` after a failure are over."""


class WakeUp(NamedTuple):
    """Timer: a client looks again at what it could do."""


class ClientMetadataRequest(NamedTuple):
    """Question for the leaders of these partitions, and the partition counts of these topics."""

    header: Header
    partitions: tuple[TopicPartition, ...]
    topics: tuple[TopicId, ...] = ()


class PartitionLeader(NamedTuple):
    """A partition's leader as one broker knows it: LEADER_NOT_AVAILABLE, or UNKNOWN_TOPIC_OR_PARTITION."""

    topic_partition: TopicPartition
    error: Error
    leader: BrokerId = NO_LEADER
    leader_epoch: int = -1


class ClientMetadataResponse(NamedTuple):
    """One entry for each partition and each topic asked for; 0 partitions: there is no such topic."""

    correlation_id: int
    partitions: tuple[PartitionLeader, ...]
    topics: tuple[tuple[TopicId, int], ...] = ()


class CoordinatorKey(NamedTuple):
    """A group or a transactional id, by the internal topic that keeps its state."""

    topic: str
    key: str


class FindCoordinatorRequest(NamedTuple):
    """Question for the coordinator of a group or transactional id."""

    header: Header
    key: CoordinatorKey


class FindCoordinatorResponse(NamedTuple):
    """The leader of the key's partition; COORDINATOR_NOT_AVAILABLE while there is none."""

    correlation_id: int
    error: Error
    coordinator: BrokerId = NO_LEADER


# A producer writes to a leader, and gets its producer id (apis 0 and 22). Values only.


class Acks(IntEnum):
    """Condition on which a leader answers."""

    NONE = 0
    """Never."""
    LEADER = 1
    """After its own append ("asynchronous replication" in older texts)."""
    ALL = -1
    """Once every in-sync replica has it ("synchronous replication")."""


class ProducePartition(NamedTuple):
    """One batch; the leader gives it its base offset."""

    topic_partition: TopicPartition
    batch: Batch


class ProduceRequest(NamedTuple):
    """Batches for partitions of one leader, at most one a partition; ``timeout_ms`` limits the wait for replicas."""

    header: Header
    acks: Acks
    timeout_ms: int
    partitions: tuple[ProducePartition, ...]
    transactional_id: str | None = None


class ProducedPartition(NamedTuple):
    """Offset of a batch, or the reason why it has none."""

    topic_partition: TopicPartition
    error: Error = Error.NONE
    base_offset: int = -1


class ProduceResponse(NamedTuple):
    """One entry for each partition of the request."""

    correlation_id: int
    partitions: tuple[ProducedPartition, ...]


class InitProducerIdRequest(NamedTuple):
    """A producer begins a session. Without a transactional id any broker answers, else the coordinator.

    ``producer_id`` and ``producer_epoch``: what it had, when it asks for a higher epoch after an error (KIP-360).
    """

    header: Header
    transactional_id: str | None = None
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


class InitProducerIdResponse(NamedTuple):
    """The session's identity."""

    correlation_id: int
    error: Error
    producer_id: int = -1
    producer_epoch: int = -1


class AllocateProducerIdsRequest(NamedTuple):
    """A broker wants its next block of producer ids (api 67)."""

    header: Header


class AllocateProducerIdsResponse(NamedTuple):
    """Ids ``[first, first + size)`` are the broker's."""

    correlation_id: int
    first: int
    size: int


# Reads of a consumer, and where it may begin (apis 1 and 2). Values only.


ANY_EPOCH: Final = -1


class IsolationLevel(IntEnum):
    """Limit up to which a consumer reads."""

    READ_UNCOMMITTED = 0
    """To the high watermark."""
    READ_COMMITTED = 1
    """To the last stable offset, and past what was aborted."""


class Timestamp(IntEnum):
    """Special offsets that a consumer may ask for instead of a time."""

    LATEST = -1
    EARLIEST = -2


class ConsumerFetchPartition(NamedTuple):
    """Position of a consumer, and the leader epoch it knows; ``ANY_EPOCH`` if it knows none."""

    topic_partition: TopicPartition
    leader_epoch: int
    fetch_offset: int


class ConsumerFetchRequest(NamedTuple):
    """A consumer asks one broker for records and is ready to wait for them.

    Departs from Kafka: no fetch session; one record is enough to be answered (``fetch.min.bytes`` 1).
    """

    header: Header
    isolation: IsolationLevel
    rack: str | None
    max_wait_ms: int
    partitions: tuple[ConsumerFetchPartition, ...]


class ConsumerFetchedPartition(NamedTuple):
    """Records ``[fetch_offset, end_offset)``, an error, or a replica that is nearer (KIP-392).

    ``epochs`` as in a follower's fetch. ``batches`` are whole: the first may begin before, the last end after these.
    ``aborted``: whose records must not be read.
    """

    topic_partition: TopicPartition
    error: Error = Error.NONE
    fetch_offset: int = -1
    end_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    epochs: tuple[EpochEntry, ...] = ()
    batches: tuple[Batch, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()
    preferred_read_replica: BrokerId | None = None

    @property
    def has_news(self) -> bool:
        """True if there is no reason to wait any longer."""
        has_records = self.end_offset > self.fetch_offset
        return has_records or self.error is not Error.NONE or self.preferred_read_replica is not None


class ConsumerFetchResponse(NamedTuple):
    """One entry for each partition of the request."""

    correlation_id: int
    partitions: tuple[ConsumerFetchedPartition, ...]


class ListOffsetsPartition(NamedTuple):
    """Question for an offset of this partition."""

    topic_partition: TopicPartition
    leader_epoch: int
    timestamp: Timestamp


class ListOffsetsRequest(NamedTuple):
    """A consumer asks leaders where logs begin or end."""

    header: Header
    isolation: IsolationLevel
    partitions: tuple[ListOffsetsPartition, ...]


class ListedOffset(NamedTuple):
    """The offset, and the leader epoch of the leader that answers; OFFSET_NOT_AVAILABLE: ask again (KIP-207)."""

    topic_partition: TopicPartition
    error: Error = Error.NONE
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsResponse(NamedTuple):
    """One entry for each partition of the request."""

    correlation_id: int
    partitions: tuple[ListedOffset, ...]


# An administrator deletes the oldest records of a partition (api 21, KIP-107). Values only.


ALL_COMMITTED: Final = -1


class DeleteRecordsRequest(NamedTuple):
    """Everything below ``offset`` may go; ``ALL_COMMITTED``: everything below the high watermark."""

    header: Header
    topic_partition: TopicPartition
    offset: int


class DeleteRecordsResponse(NamedTuple):
    """``low_watermark``: where the log starts now."""

    correlation_id: int
    error: Error
    low_watermark: int = -1
