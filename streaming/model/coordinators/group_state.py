"""A group of either protocol, and its coordinator's records in ``__consumer_offsets``. Pure values."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import TopicId
from streaming.model.constants import Error
from streaming.model.coordinators.assignors import SERVER_ASSIGNORS, Subscription
from streaming.model.messages.coordinators import NO_GENERATION, NO_MEMBER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.messages.clients import Header
    from streaming.model.messages.coordinators import CommittedOffset, JoinGroupRequest

if TYPE_CHECKING:
    Partitions = frozenset[TopicPartition]

DEFAULT_ASSIGNOR: Final = next(iter(SERVER_ASSIGNORS))


class MemberState(IntEnum):
    """Progress of a member on its way to the target; the numbers stand in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give up something first."""
    UNRELEASED_PARTITIONS = 2
    """It waits for something that another member has to give up first."""


class GroupState(Enum):
    """``ConsumerGroupState``, of either protocol."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class Member(NamedTuple):
    """A member.

    Attributes:
        epoch: the member epoch, the newest it was told.
        previous_epoch: the one before, by which a request is recognised whose answer was lost. Invariant: < ``epoch``.
        assigned: what it may read. Invariant: disjoint from what every other member has assigned or is revoking.
        revoking: what it has not given up yet.
    """

    member_id: str
    topics: frozenset[TopicId]
    assignor: str | None
    rebalance_timeout_ms: int
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = frozenset()
    revoking: Partitions = frozenset()

    @property
    def held(self) -> Partitions:
        """Partitions that no other member may get."""
        return self.assigned | self.revoking


class ConsumerGroup(NamedTuple):
    """A group.

    Attributes:
        epoch: the group epoch: grows with every change of members, subscriptions or partitions.
        target_epoch: the group epoch that the target was computed for. Invariant: every member's epoch ≤ target epoch
            ≤ group epoch.
        target: who is to read what. Invariant: no partition twice, and only to members that subscribe to its topic.
        counts: how many partitions each topic had when the target was computed.
        since_ms: when epoch or target changed last.
    """

    epoch: int = 0
    counts: tuple[tuple[TopicId, int], ...] = ()
    target_epoch: int = 0
    target: Mapping[str, Partitions] = {}
    members: Mapping[str, Member] = {}
    since_ms: int = 0

    @property
    def state(self) -> GroupState:
        """State that an administrator sees."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        is_done = all(
            member.state is MemberState.STABLE and member.epoch == self.target_epoch for member in self.members.values()
        )
        return GroupState.STABLE if is_done else GroupState.RECONCILING

    def holder_of(self, partition: TopicPartition) -> str | None:
        """Give the member that has a partition, or has not given it up yet."""
        return next((name for name, member in self.members.items() if partition in member.held), None)


def fence(member: Member | None, epoch: int, owned: Partitions | None) -> Error:
    """Compare the epoch that a member states with what the coordinator told it.

    The epoch before is right, too, as long as the member owns nothing that was not meant for it: its last answer was
    lost.
    """
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    if epoch == member.epoch:
        return Error.NONE
    is_lost_answer = epoch == member.previous_epoch and owned is not None and owned <= member.assigned
    return Error.NONE if is_lost_answer else Error.FENCED_MEMBER_EPOCH


def with_member(group: ConsumerGroup, member: Member) -> ConsumerGroup:
    """Replace a member, or add it."""
    return group._replace(members={**group.members, member.member_id: member})


def without_member(group: ConsumerGroup, member_id: str) -> ConsumerGroup:
    """A member is gone, by its own will or not: what it had is free, and every target is another."""
    members = {name: member for name, member in group.members.items() if name != member_id}
    return group._replace(members=members, epoch=group.epoch + 1)


def retarget(group: ConsumerGroup, counts: Mapping[TopicId, int], now: int) -> ConsumerGroup:
    """Compute the target of the group epoch if it is newer than the target's."""
    if group.epoch == group.target_epoch:
        return group
    members = [
        Subscription(name, member.topics, tuple(sorted(group.target.get(name, ()))), group.target_epoch)
        for name, member in group.members.items()
    ]
    assign = SERVER_ASSIGNORS[assignor_of(group)]
    shares = assign(counts, members) if members else {}
    return group._replace(
        counts=tuple(sorted(counts.items())),
        target_epoch=group.epoch,
        target={name: frozenset(share) for name, share in shares.items()},
        since_ms=now,
    )


def assignor_of(group: ConsumerGroup) -> str:
    """Give the assignor that most members ask for; the coordinator's own if none does."""
    asked = [member.assignor for member in group.members.values() if member.assignor is not None]
    return max(sorted(set(asked)), key=asked.count) if asked else DEFAULT_ASSIGNOR


def reconcile(group: ConsumerGroup, member: Member, owned: Partitions | None) -> Member:
    """Bring a member one step nearer to its target; ``owned``: what it says to read now, None if it does not say."""
    if member.state is MemberState.STABLE:
        return member if member.epoch == group.target_epoch else _towards(group, member, member.epoch, owned)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or owned & member.revoking:
            return member
        return _towards(group, member._replace(revoking=frozenset()), member.epoch + 1, owned)
    return _towards(group, member, member.epoch, owned)


def _towards(group: ConsumerGroup, member: Member, epoch: int, owned: Partitions | None) -> Member:
    """First give up, then get what is free, then wait for the rest."""
    target = group.target.get(member.member_id, frozenset())
    keeps, revokes = member.assigned & target, member.assigned - target
    if revokes and (owned is None or owned & revokes):
        return _at(member, epoch)._replace(state=MemberState.UNREVOKED_PARTITIONS, assigned=keeps, revoking=revokes)
    assignable = target - keeps
    free = frozenset(partition for partition in assignable if group.holder_of(partition) in {None, member.member_id})
    state = MemberState.STABLE if free == assignable else MemberState.UNRELEASED_PARTITIONS
    return _at(member, group.target_epoch)._replace(state=state, assigned=keeps | free, revoking=frozenset())


def _at(member: Member, epoch: int) -> Member:
    return member if epoch == member.epoch else member._replace(epoch=epoch, previous_epoch=member.epoch)


# A group of the classic protocol: its members agree on a generation, one of them assigns the partitions. No IO.


# States that may come before (``ClassicGroupState``).
MAY_FOLLOW: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(
        {
            GroupState.STABLE,
            GroupState.PREPARING_REBALANCE,
            GroupState.COMPLETING_REBALANCE,
            GroupState.EMPTY,
            GroupState.DEAD,
        }
    ),
}


class ClassicMember:
    """A member.

    Attributes:
        share: what it may read in this generation.
        joining: its JoinGroup that waits for the others.
        syncing: its SyncGroup that waits for the leader's.
    """

    __slots__ = (
        "assignors",
        "joining",
        "member_id",
        "owned",
        "owned_generation",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "share",
        "syncing",
        "topics",
    )

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.assignors: tuple[str, ...] = ()
        self.topics: frozenset[TopicId] = frozenset()
        self.owned: tuple[TopicPartition, ...] = ()
        self.owned_generation = NO_GENERATION
        self.session_timeout_ms = 0
        self.rebalance_timeout_ms = 0
        self.share: tuple[TopicPartition, ...] = ()
        self.joining: Header | None = None
        self.syncing: Header | None = None

    def take(self, request: JoinGroupRequest) -> bool:
        """Take in what a member says of itself; tell whether it is news that concerns the others."""
        subscription = (request.assignors, request.topics, request.owned)
        is_news = subscription != (self.assignors, self.topics, self.owned)
        self.assignors, self.topics, self.owned = subscription
        self.owned_generation = request.owned_generation
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.joining = request.header
        return is_news


class ClassicGroup:
    """A group.

    Attributes:
        pending: ids that were given out to members that have not joined yet.
        rebalance: number of the timer that limits the running rebalance.
        is_gathering: it is the first one, and waits for still more members.
        patience_ms: how much longer it may do so.
        has_grown: a member joined since that wait began.
        since_ms: when its state changed last.
    """

    def __init__(self) -> None:
        self.state = GroupState.EMPTY
        self.generation = 0
        self.assignor = ""
        self.leader = NO_MEMBER
        self.members: dict[str, ClassicMember] = {}
        self.pending: set[str] = set()
        self.rebalance = 0
        self.is_gathering = False
        self.patience_ms = 0
        self.has_grown = False
        self.since_ms = 0

    def move(self, now: int, state: GroupState) -> None:
        """Take a step of the table."""
        assert self.state in MAY_FOLLOW[state], f"{self.state} -> {state}"  # noqa: S101 - a step that the table lacks is a mistake in this package
        self.state, self.since_ms = state, now

    @property
    def rebalance_timeout_ms(self) -> int:
        """Longest wait of a rebalance for members: as long as the most patient one says."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def have_all_joined(self) -> bool:
        """True if there is no member left to wait for."""
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def topics(self) -> frozenset[TopicId]:
        """Topics that its members read."""
        return frozenset[TopicId]().union(*(member.topics for member in self.members.values()))

    def begin_generation(self) -> list[str]:
        """Continue without those that did not join, and give them; elect a leader and an assignor."""
        late = [name for name, member in self.members.items() if member.joining is None]
        for name in late:
            del self.members[name]
        self.generation += 1
        if self.leader not in self.members:
            self.leader = next(iter(self.members), NO_MEMBER)
        self.assignor = self._elected_assignor()
        return late

    def accepts(self, assignors: tuple[str, ...]) -> bool:
        """Return whether all members would still have an assignor in common."""
        common = set(assignors).intersection(*(member.assignors for member in self.members.values()))
        return bool(common)

    def _elected_assignor(self) -> str:
        """Each votes for its favourite among those that all know; of several the leader's favourite wins."""
        if not self.members:
            return ""
        common = set[str].intersection(*(set(member.assignors) for member in self.members.values()))
        votes = [next(name for name in member.assignors if name in common) for member in self.members.values()]
        return max(self.members[self.leader].assignors, key=votes.count)

    def value(self, group: str, shares: dict[str, tuple[TopicPartition, ...]]) -> ClassicGroupValue:
        """Give the record of this generation."""
        members = tuple(
            ClassicMemberValue(
                name,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.assignors,
                member.topics,
                shares.get(name, ()),
            )
            for name, member in self.members.items()
        )
        return ClassicGroupValue(group, self.generation, self.assignor, self.leader, members, self.since_ms)


def from_value(value: ClassicGroupValue) -> ClassicGroup:
    """Another coordinator continues what its predecessor wrote: the generation is complete, or it has no member."""
    group = ClassicGroup()
    group.generation, group.assignor, group.leader = value.generation, value.assignor, value.leader
    group.since_ms = value.since_ms
    for stored in value.members:
        member = group.members[stored.member_id] = ClassicMember(stored.member_id)
        member.assignors, member.topics, member.share = stored.assignors, stored.topics, stored.share
        member.session_timeout_ms, member.rebalance_timeout_ms = stored.session_timeout_ms, stored.rebalance_timeout_ms
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    return group


# Records of ``__consumer_offsets``: keys and values, as many as a group has things to remember.
#
# A value of None under the same key takes it back (a tombstone). Departs from Kafka: a group's target assignment is
# one record, not one a member, and what a member wants and what it has are one record, not two.


Share = tuple["TopicPartition", ...]


class OffsetCommitValue(NamedTuple):
    """A committed offset, and when it was committed."""

    group: str
    topic_partition: TopicPartition
    committed: CommittedOffset
    commit_ms: int

    @property
    def key(self) -> str:
        """Key of its record."""
        return offset_key(self.group, self.topic_partition)


class ClassicMemberValue(NamedTuple):
    """A member of a generation, and its share."""

    member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: tuple[str, ...]
    topics: frozenset[TopicId]
    share: Share


class ClassicGroupValue(NamedTuple):
    """A generation (``GroupMetadataValue``); without members the group is empty."""

    group: str
    generation: int
    assignor: str
    leader: str
    members: tuple[ClassicMemberValue, ...]
    since_ms: int

    @property
    def key(self) -> str:
        """Key of its record."""
        return group_key(self.group)


class ConsumerGroupValue(NamedTuple):
    """Group epoch, and the target that was computed in which epoch.

    ``counts``: how many partitions the topics had then. ``since_ms``: when it changed last.
    """

    group: str
    epoch: int
    counts: tuple[tuple[TopicId, int], ...]
    target_epoch: int
    target: tuple[tuple[str, frozenset[TopicPartition]], ...]
    since_ms: int

    @property
    def key(self) -> str:
        """Key of its record."""
        return group_key(self.group)


class ConsumerMemberValue(NamedTuple):
    """A member of a consumer group."""

    group: str
    member: Member

    @property
    def key(self) -> str:
        """Key of its record."""
        return member_key(self.group, self.member.member_id)


Value = OffsetCommitValue | ClassicGroupValue | ConsumerGroupValue | ConsumerMemberValue


def offset_key(group: str, partition: TopicPartition) -> str:
    """Name a committed offset."""
    return f"{group}/offset/{partition.topic_id}-{partition.partition}"


def group_key(group: str) -> str:
    """Name a group."""
    return f"{group}/group"


def member_key(group: str, member_id: str) -> str:
    """Name a member of a consumer group."""
    return f"{group}/member/{member_id}"
