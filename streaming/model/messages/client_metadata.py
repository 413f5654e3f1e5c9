"""A client asks a broker who leads and who coordinates (apis 3 and 10), and what every request carries. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import NO_LEADER
from streaming.model.errors import Error

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"


class Header(NamedTuple):
    """Who asks, and the number that the answer repeats."""

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
    """Who leads these partitions, and how many have these topics?"""

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
    """Who coordinates this group or transactional id?"""

    header: Header
    key: CoordinatorKey


class FindCoordinatorResponse(NamedTuple):
    """The leader of the key's partition; COORDINATOR_NOT_AVAILABLE while there is none."""

    correlation_id: int
    error: Error
    coordinator: BrokerId = NO_LEADER
