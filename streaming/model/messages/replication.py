"""Replication: what a follower asks its leader, and the answer (api 1). Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.records import RECOVERED
from streaming.model.constants import Error

if TYPE_CHECKING:
    from streaming.contracts.events import Cause
    from streaming.contracts.identifiers import BrokerEpoch, BrokerId, TopicPartition
    from streaming.model.messages.clients import Header
    from streaming.model.messages.registrations import PartitionRegistration
    from streaming.model.storage.batch import Batch


class FetchPartition(NamedTuple):
    """One partition of a fetch: where the follower is, in which epochs."""

    topic_partition: TopicPartition
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


class FetchRequest(NamedTuple):
    """A follower's fetch session (KIP-227): only what changed since its last request, unless ``full``."""

    request_id: int
    follower: BrokerId
    broker_epoch: int
    partitions: tuple[FetchPartition, ...]
    forgotten: tuple[TopicPartition, ...]
    full: bool


class FetchedPartition(NamedTuple):
    """One partition of an answer: records ``[fetch_offset, end_offset)``, an error, or where the logs part.

    Departs from Kafka: OFFSET_OUT_OF_RANGE tells at once where the leader's log starts and ends; Kafka's follower asks
    for that with two ListOffsets requests. ``timestamp_ms``, the largest of the segment that the records come from, is
    in Kafka one in each record.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    error: Error = Error.NONE
    fetch_offset: int = 0
    end_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    high_watermark: int = 0
    log_start_offset: int = 0
    diverging: tuple[int, int] | None = None
    batches: tuple[Batch, ...] = ()
    timestamp_ms: int = 0


class FetchResponse(NamedTuple):
    """A leader's answer; partitions with nothing new are left out."""

    request_id: int
    leader: BrokerId
    partitions: tuple[FetchedPartition, ...]


# Question for the end of an epoch at its leader (api 23, KIP-101, KIP-279, KIP-320). Values only.


class OffsetForLeaderEpochPartition(NamedTuple):
    """``epoch``: the one in question. ``leader_epoch``: the one that the asker knows."""

    topic_partition: TopicPartition
    leader_epoch: int
    epoch: int


class OffsetsForLeaderEpochRequest(NamedTuple):
    """A follower asks before it fetches. A consumer may, to find out that records it read were truncated."""

    header: Header
    partitions: tuple[OffsetForLeaderEpochPartition, ...]


class EpochEndOffset(NamedTuple):
    """The largest epoch not above the one in question, and its end offset; -1 each if undefined.

    Version 0 (KIP-101) told the end offset without the epoch: ``epoch`` is -1.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    error: Error = Error.NONE
    epoch: int = -1
    end_offset: int = -1


class OffsetsForLeaderEpochResponse(NamedTuple):
    """A leader's answer."""

    correlation_id: int
    leader: BrokerId
    partitions: tuple[EpochEndOffset, ...]


# A leader proposes ISRs to the controller (api 56, KIP-497). Values only.


ANY_BROKER_EPOCH: Final = -1


class AlterPartitionItem(NamedTuple):
    """A proposed ISR. ``isr`` carries each member's broker epoch, or ``ANY_BROKER_EPOCH`` (KIP-903).

    ``leader_recovery_state``: with its first proposal a leader tells that it has recovered from an unclean election.

    ``cause`` is a ghost: the leader's true reason, which the protocol does not carry.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]
    cause: Cause
    leader_recovery_state: int = RECOVERED


class AlterPartitionRequest(NamedTuple):
    """Every proposal that a leader has ready; it keeps one such request in flight (KIP-497)."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[AlterPartitionItem, ...]


class AlteredPartition(NamedTuple):
    """The controller's verdict on one proposal, and its own view."""

    topic_partition: TopicPartition
    error: Error
    registration: PartitionRegistration | None = None


class AlterPartitionResponse(NamedTuple):
    """The verdicts; ``error`` is set when the whole request was refused."""

    error: Error
    partitions: tuple[AlteredPartition, ...] = ()
