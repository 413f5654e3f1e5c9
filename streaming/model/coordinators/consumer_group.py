"""A group of the consumer protocol (KIP-848): the coordinator decides who reads what. Pure values.

Three epochs. The *group epoch* grows with every change of members, subscriptions or topics; the *target epoch* is the
group epoch for which the target assignment was computed; a *member epoch* is the target epoch that the member has
reached. A member first gives up what it should not have, and only then gets what nobody has any more: so a partition
never has two owners (``CurrentAssignmentBuilder``).

Departs from Kafka: no static members, no regular expressions; the target is computed with every change at once, so a
group is never seen ``ASSIGNING``.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.model.coordinators.assignors import SERVER_ASSIGNORS, Subscription
from streaming.model.errors import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.identifiers import TopicId, TopicPartition

    Partitions = frozenset[TopicPartition]

DEFAULT_ASSIGNOR: Final = next(iter(SERVER_ASSIGNORS))


class MemberState(IntEnum):
    """How far a member is on its way to the target; the numbers stand in the log."""

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
        """What nobody else may get."""
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
        """What an administrator sees."""
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
    """A member is gone, by its own will or not: what it had is free, and everybody's target is another."""
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
    """Give the assignor that most members ask for; the coordinator's own if nobody asks."""
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
