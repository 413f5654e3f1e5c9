"""A producer writes to a leader, and gets its producer id (apis 0 and 22). Values only."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from streaming.model.errors import Error

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.messages.client_metadata import Header
    from streaming.model.storage.batch import Batch


class Acks(IntEnum):
    """When a leader answers."""

    NONE = 0
    """Never."""
    LEADER = 1
    """After its own append ("asynchronous replication" in older texts)."""
    ALL = -1
    """Once everybody in sync has it ("synchronous replication")."""


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
    """Where a batch stands, or why it does not."""

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
