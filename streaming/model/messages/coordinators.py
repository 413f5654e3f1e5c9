"""Members of a group and its coordinator (apis 8, 9, 11 to 14, 68). Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicId, TopicPartition
    from streaming.model.constants import Error
    from streaming.model.messages.clients import Header
    from streaming.model.storage.batch import Marker

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""
LEAVE_EPOCH: Final = -1  # a member of a consumer group (KIP-848) says goodbye with it
JOIN_EPOCH: Final = 0


class CommittedOffset(NamedTuple):
    """Position at which a group continues: the next record to read, and the leader epoch of the one before it."""

    offset: int
    leader_epoch: int


# ------------------------------------------------------------------ classic protocol


class JoinGroupRequest(NamedTuple):
    """A consumer joins or joins again: what it reads, what it owns since which generation.

    ``assignors``: those it knows, the favourite first.
    """

    header: Header
    group: str
    member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: tuple[str, ...]
    topics: frozenset[TopicId]
    owned: tuple[TopicPartition, ...] = ()
    owned_generation: int = NO_GENERATION


class JoinedMember(NamedTuple):
    """A member as the group's leader needs it to assign partitions."""

    member_id: str
    topics: frozenset[TopicId]
    owned: tuple[TopicPartition, ...]
    owned_generation: int


class JoinGroupResponse(NamedTuple):
    """The generation begins; only its leader is told of the members, for it assigns the partitions."""

    correlation_id: int
    error: Error
    generation: int = NO_GENERATION
    assignor: str = ""
    leader: str = NO_MEMBER
    member_id: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()


class SyncGroupRequest(NamedTuple):
    """A member waits for its share; the leader brings all shares along."""

    header: Header
    group: str
    generation: int
    member_id: str
    assignment: tuple[tuple[str, tuple[TopicPartition, ...]], ...] = ()


class SyncGroupResponse(NamedTuple):
    """A member's share."""

    correlation_id: int
    error: Error
    partitions: tuple[TopicPartition, ...] = ()


class HeartbeatRequest(NamedTuple):
    """A member is alive."""

    header: Header
    group: str
    generation: int
    member_id: str


class HeartbeatResponse(NamedTuple):
    """REBALANCE_IN_PROGRESS: join again."""

    correlation_id: int
    error: Error


class LeaveGroupRequest(NamedTuple):
    """A member goes."""

    header: Header
    group: str
    member_id: str


class LeaveGroupResponse(NamedTuple):
    """It is gone."""

    correlation_id: int
    error: Error


# ------------------------------------------------------------------ consumer protocol, KIP-848


class ConsumerGroupHeartbeatRequest(NamedTuple):
    """A member is alive, in this epoch; ``owned``: what it reads now, None if it does not say.

    ``topics`` None: as before. ``assignor`` None: the coordinator's choice.
    """

    header: Header
    group: str
    member_id: str
    epoch: int
    rebalance_timeout_ms: int
    topics: frozenset[TopicId] | None = None
    assignor: str | None = None
    owned: frozenset[TopicPartition] | None = None


class ConsumerGroupHeartbeatResponse(NamedTuple):
    """Assignment of the member, and its epoch.

    Departs from Kafka: every answer tells the assignment; Kafka's tells it where it may be news.
    """

    correlation_id: int
    error: Error
    epoch: int = -1
    partitions: frozenset[TopicPartition] = frozenset()


# ------------------------------------------------------------------ offsets


class OffsetCommitRequest(NamedTuple):
    """Offsets, fenced by ``generation`` (the member epoch in the consumer protocol).

    Without a group membership: no member id, ``NO_GENERATION``.
    """

    header: Header
    group: str
    member_id: str
    generation: int
    offsets: tuple[tuple[TopicPartition, CommittedOffset], ...]


class OffsetCommitResponse(NamedTuple):
    """Committed on all of the ISR, or not. Departs from Kafka: one verdict for all partitions."""

    correlation_id: int
    error: Error


class OffsetFetchRequest(NamedTuple):
    """Question for the committed offsets of a group; ``partitions`` None: of all where it committed.

    A member of a consumer group states its epoch; ``NO_GENERATION``: any sender.
    """

    header: Header
    group: str
    partitions: tuple[TopicPartition, ...] | None
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION


class OffsetFetchResponse(NamedTuple):
    """Committed offsets; a partition without one is left out."""

    correlation_id: int
    error: Error
    offsets: tuple[tuple[TopicPartition, CommittedOffset], ...] = ()


# ------------------------------------------------------------------ timers of the coordinator


class SessionDue(NamedTuple):
    """Timer: has this member been heard of within its session?"""

    group: str
    member_id: str


class RevocationDue(NamedTuple):
    """Timer: a member had its rebalance timeout to give partitions up; ``epoch``: the member's then."""

    group: str
    member_id: str
    epoch: int


class JoinsDue(NamedTuple):
    """Timer: a rebalance of the classic protocol has waited long enough for its members."""

    group: str
    number: int


class OffsetExpirationDue(NamedTuple):
    """Timer: look for offsets that are not used any more."""


# Transactions: producers, leaders and coordinators talk of them (apis 24, 26 and 27). Values only.


class AddPartitionsToTxnRequest(NamedTuple):
    """These partitions are about to be written in a transaction.

    A producer asks before it writes; from transaction version 2 on the partition's leader does. ``verify_only``: a
    leader makes sure that the producer has asked (KIP-890).
    """

    header: Header
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False


class AddPartitionsToTxnResponse(NamedTuple):
    """One verdict for each partition."""

    correlation_id: int
    errors: tuple[tuple[TopicPartition, Error], ...]


class EndTxnRequest(NamedTuple):
    """Producer commits or aborts."""

    header: Header
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(NamedTuple):
    """The decision is in the coordinator's log. The identity is the one to continue with (version 2)."""

    correlation_id: int
    error: Error
    producer_id: int = -1
    producer_epoch: int = -1


class WriteTxnMarkersRequest(NamedTuple):
    """Coordinator tells a leader how a transaction ended."""

    header: Header
    producer_id: int
    producer_epoch: int
    marker: Marker
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]


class WriteTxnMarkersResponse(NamedTuple):
    """One verdict for each partition: NONE once every in-sync replica has the marker."""

    correlation_id: int
    errors: tuple[tuple[TopicPartition, Error], ...]


class TransactionTimeoutsDue(NamedTuple):
    """Timer: a coordinator looks for transactions that were open too long."""


class MarkersDue(NamedTuple):
    """Timer: markers that were not written are sent again; void for a later transaction."""

    transactional_id: str
    producer_epoch: int
