"""What a consumer reads, and where it may begin (apis 1 and 2). Values only."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.model.errors import Error

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.messages.client_metadata import Header
    from streaming.model.storage.batch import Batch
    from streaming.model.storage.log import EpochEntry
    from streaming.model.storage.producer_state import AbortedTransaction

ANY_EPOCH: Final = -1


class IsolationLevel(IntEnum):
    """How far a consumer reads."""

    READ_UNCOMMITTED = 0
    """To the high watermark."""
    READ_COMMITTED = 1
    """To the last stable offset, and past what was aborted."""


class Timestamp(IntEnum):
    """What a consumer may ask for instead of a time."""

    LATEST = -1
    EARLIEST = -2


class ConsumerFetchPartition(NamedTuple):
    """Where a consumer is, and the leader epoch it knows; ``ANY_EPOCH`` if it knows none."""

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
        """Whether there is no reason to wait any longer."""
        has_records = self.end_offset > self.fetch_offset
        return has_records or self.error is not Error.NONE or self.preferred_read_replica is not None


class ConsumerFetchResponse(NamedTuple):
    """One entry for each partition of the request."""

    correlation_id: int
    partitions: tuple[ConsumerFetchedPartition, ...]


class ListOffsetsPartition(NamedTuple):
    """Which offset of this partition?"""

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
