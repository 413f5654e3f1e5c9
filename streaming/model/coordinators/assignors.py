"""Assignment of partitions to members of a group. Pure: partition counts and members in, an assignment out.

The classic protocol lets the group's leader, a consumer, assign; the protocol of KIP-848 lets the coordinator do it.
Whatever the assignor, a partition goes to exactly one of the members that subscribe to its topic, and to none if there
are none; members beyond the number of partitions stay idle.

Departs from Kafka: topics are ordered by id, where classic assignors order them by name; where Kafka walks a hash map
of members, the order is that of their ids; racks (KIP-881) do not count.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import TopicId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    Counts = Mapping[TopicId, int]  # how many partitions each topic has
    Assignor = Callable[[Counts, Sequence["Subscription"]], "Assignment"]

Assignment = dict[str, tuple[TopicPartition, ...]]
Shares = dict[str, list[TopicPartition]]


class Subscription(NamedTuple):
    """A member: what it wants to read, and what it says to own since a generation (-1: it names none)."""

    member_id: str
    topics: frozenset[TopicId]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None


def range_(topics: Counts, members: Sequence[Subscription]) -> Assignment:
    """Give each reader of a topic a stretch of it, the first ones one more (``RangeAssignor``, of either protocol).

    Equal numbers of equally partitioned topics meet in one member, so it can join them; with many topics of few
    partitions the first members get everything.
    """
    shares = _nothing(members)
    ordered = _static_members_first(members)
    for topic, partitions in sorted(topics.items()):
        readers = [member for member in ordered if topic in member.topics]
        start = 0
        for rank, member in enumerate(readers):
            end = start + partitions // len(readers) + (rank < partitions % len(readers))
            shares[member.member_id] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return _frozen(shares)


def round_robin(topics: Counts, members: Sequence[Subscription]) -> Assignment:
    """Deal all partitions out in turn, past members that do not want one (``RoundRobinAssignor``)."""
    shares = _nothing(members)
    ordered = deque(_static_members_first(members))
    for partition in _subscribed_partitions(topics, members):
        while partition.topic_id not in ordered[0].topics:
            ordered.rotate(-1)
        shares[ordered[0].member_id].append(partition)
        ordered.rotate(-1)
    return _frozen(shares)


def sticky(topics: Counts, members: Sequence[Subscription]) -> Assignment:
    """Balance first, then move as little as possible (``StickyAssignor``, KIP-54)."""
    owned = _rightly_owned(topics, members)
    if _all_subscribe_alike(members):
        return _frozen(_keep_and_deal(_subscribed_partitions(topics, members), owned))
    return _frozen(_keep_and_balance(topics, members, owned))


def cooperative_sticky(topics: Counts, members: Sequence[Subscription]) -> Assignment:
    """Do as ``sticky``, but hand over nothing that another member still owns (``CooperativeStickyAssignor``, KIP-429).

    The owner sees that it lost a partition, stops reading it, and joins again; the next assignment hands it over.
    """
    everything_owned = {partition for member in members for partition in member.owned}
    own = {member.member_id: frozenset(member.owned) for member in members}
    return {
        member_id: tuple(
            partition for partition in share if partition in own[member_id] or partition not in everything_owned
        )
        for member_id, share in sticky(topics, members).items()
    }


def uniform(topics: Counts, members: Sequence[Subscription]) -> Assignment:
    """Balance first, then move as little as possible; by the coordinator (``UniformAssignor``, KIP-848)."""
    owned = _rightly_owned(topics, members)
    if _all_subscribe_alike(members):
        return _frozen(_keep_and_fill(_subscribed_partitions(topics, members), owned))
    return _frozen(_keep_and_balance(topics, members, owned))


CLASSIC_ASSIGNORS: Final[dict[str, Assignor]] = {
    "range": range_,
    "roundrobin": round_robin,
    "sticky": sticky,
    "cooperative-sticky": cooperative_sticky,
}
# By the names of group.consumer.assignors; the first is the default.
SERVER_ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform, "range": range_}


def _nothing(members: Iterable[Subscription]) -> Shares:
    return {member.member_id: [] for member in members}


def _frozen(shares: Shares) -> Assignment:
    return {member_id: tuple(share) for member_id, share in shares.items()}


def _static_members_first(members: Iterable[Subscription]) -> list[Subscription]:
    """A static member (KIP-345) keeps its rank when it returns under another member id."""
    return sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id))


def _all_subscribe_alike(members: Iterable[Subscription]) -> bool:
    return len({member.topics for member in members}) == 1


def _subscribed_partitions(topics: Counts, members: Iterable[Subscription]) -> list[TopicPartition]:
    """Every partition that a member subscribes to, in order."""
    subscribed = frozenset[TopicId]().union(*(member.topics for member in members))
    return [
        TopicPartition(topic_id, number)
        for topic_id in sorted(subscribed & topics.keys())
        for number in range(topics[topic_id])
    ]


def _rightly_owned(topics: Counts, members: Iterable[Subscription]) -> Shares:
    """Partitions that members own and may keep. The newest generation is right; of two equally new, neither is."""
    owners: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        for partition in member.owned:
            if partition.topic_id not in member.topics or partition.partition >= topics.get(partition.topic_id, 0):
                continue
            generation, _ = owners.get(partition, (member.generation - 1, None))
            if member.generation > generation:
                owners[partition] = (member.generation, member.member_id)
            elif member.generation == generation:
                owners[partition] = (generation, None)
    return {
        member.member_id: [
            partition for partition in member.owned if partition in owners and owners[partition][1] == member.member_id
        ]
        for member in sorted(members, key=lambda member: member.member_id)
    }


def _without(partitions: Iterable[TopicPartition], shares: Shares) -> list[TopicPartition]:
    taken = {partition for share in shares.values() for partition in share}
    return [partition for partition in partitions if partition not in taken]


def _keep_fair_share(partitions: Collection[TopicPartition], owned: Shares) -> tuple[Shares, int]:
    """Let every member keep a fair share of what it owns: n // c, and one more to n % c of the members that own more.

    Returns:
        What is kept, and how many more members have to get one more.
    """
    least, one_more = divmod(len(partitions), len(owned))
    kept: Shares = {}
    for member_id, share in owned.items():
        keeps_one_more = len(share) > least and one_more > 0
        one_more -= keeps_one_more
        kept[member_id] = share[: least + keeps_one_more]
    return kept, one_more


def _keep_and_deal(partitions: Collection[TopicPartition], owned: Shares) -> Shares:
    """Deal the rest out in turn, one by one: first to all below n // c, then one more to each who has just that."""
    least = len(partitions) // len(owned)
    shares, _ = _keep_fair_share(partitions, owned)
    below = deque(member_id for member_id, share in shares.items() if len(share) < least)
    at_least = deque(member_id for member_id, share in shares.items() if len(share) == least)
    for partition in _without(partitions, shares):
        member_id = (below or at_least).popleft()
        shares[member_id].append(partition)
        if len(shares[member_id]) <= least:
            (below if len(shares[member_id]) < least else at_least).append(member_id)
    return shares


def _keep_and_fill(partitions: Collection[TopicPartition], owned: Shares) -> Shares:
    """Fill one member after the other, so that each gets a stretch; the first who lack something get one more."""
    least = len(partitions) // len(owned)
    shares, one_more = _keep_fair_share(partitions, owned)
    rest = iter(_without(partitions, shares))
    for share in shares.values():
        if len(share) <= least:
            quota = least + (one_more > 0)
            one_more -= one_more > 0
            share += [next(rest) for _ in range(quota - len(share))]
    return shares


def _keep_and_balance(topics: Counts, members: Sequence[Subscription], owned: Shares) -> Shares:
    """Hand the rest to the member that has least, then move partitions while that evens out: for unequal subscriptions.

    Partitions with few readers go first. In the end no partition could move to a reader that has two fewer.

    Departs from Kafka: no second pass to move a partition back to the owner before the last.
    """
    readers = {
        topic: sorted(member.member_id for member in members if topic in member.topics) for topic in sorted(topics)
    }
    partitions = sorted(
        _subscribed_partitions(topics, members), key=lambda partition: (len(readers[partition.topic_id]), partition)
    )
    shares = owned

    def has_least(partition: TopicPartition) -> str:
        return min(readers[partition.topic_id], key=lambda reader: len(shares[reader]))

    for partition in _without(partitions, shares):
        shares[has_least(partition)].append(partition)
    owner = {partition: member_id for member_id, share in shares.items() for partition in share}
    moved = True
    while moved:
        moved = False
        for partition in partitions:
            giver, taker = owner[partition], has_least(partition)
            if len(shares[giver]) > len(shares[taker]) + 1:
                shares[giver].remove(partition)
                shares[taker].append(partition)
                owner[partition], moved = taker, True
    return shares
