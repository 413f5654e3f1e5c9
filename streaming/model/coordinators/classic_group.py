"""A group of the classic protocol: its members agree on a generation, one of them assigns the partitions. No IO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import TopicId
from streaming.model.coordinators.consumer_group import GroupState
from streaming.model.coordinators.group_values import ClassicGroupValue, ClassicMemberValue
from streaming.model.messages.groups import NO_GENERATION, NO_MEMBER

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.messages.client_metadata import Header
    from streaming.model.messages.groups import JoinGroupRequest

# What may come before (``ClassicGroupState``).
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
        has_grown: somebody joined since that wait began.
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
        """How long a rebalance waits for members: as long as the most patient one says."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def have_all_joined(self) -> bool:
        """Whether there is nobody left to wait for."""
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def topics(self) -> frozenset[TopicId]:
        """What its members read."""
        return frozenset[TopicId]().union(*(member.topics for member in self.members.values()))

    def begin_generation(self) -> list[str]:
        """Go on without those that did not join, and give them; elect a leader and an assignor."""
        late = [name for name, member in self.members.items() if member.joining is None]
        for name in late:
            del self.members[name]
        self.generation += 1
        if self.leader not in self.members:
            self.leader = next(iter(self.members), NO_MEMBER)
        self.assignor = self._elected_assignor()
        return late

    def accepts(self, assignors: tuple[str, ...]) -> bool:
        """Return whether everybody would still have an assignor in common."""
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
    """Another coordinator goes on with what its predecessor wrote: the generation is complete, or nobody is left."""
    group = ClassicGroup()
    group.generation, group.assignor, group.leader = value.generation, value.assignor, value.leader
    group.since_ms = value.since_ms
    for stored in value.members:
        member = group.members[stored.member_id] = ClassicMember(stored.member_id)
        member.assignors, member.topics, member.share = stored.assignors, stored.topics, stored.share
        member.session_timeout_ms, member.rebalance_timeout_ms = stored.session_timeout_ms, stored.rebalance_timeout_ms
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    return group
