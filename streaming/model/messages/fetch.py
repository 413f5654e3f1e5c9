"""Replication: what a follower asks its leader, and the answer (api 1). Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.model.errors import Error

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicPartition
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
