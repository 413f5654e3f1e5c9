"""Every assignor: each partition to one subscribed member; and what each promises beyond that."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.identifiers import TopicId, TopicPartition
from streaming.model.coordinators.assignors import (
    CLASSIC_ASSIGNORS,
    SERVER_ASSIGNORS,
    Subscription,
    cooperative_sticky,
    range_,
    round_robin,
    sticky,
    uniform,
)
from tests.examples import examples

if TYPE_CHECKING:
    from streaming.model.coordinators.assignors import Assignment, Assignor

# Those that give every partition a reader at once; cooperative-sticky needs a second round.
AT_ONCE = {"range": range_, "roundrobin": round_robin, "sticky": sticky, "uniform": uniform}
KEEPING = {"sticky": sticky, "uniform": uniform}

Counts = dict[TopicId, int]
QUICK = settings(max_examples=examples(20))

names = st.sampled_from([TopicId(name) for name in "tuv"])
counts = st.dictionaries(names, st.integers(0, 7), min_size=1)


def tp(text: str) -> TopicPartition:
    return TopicPartition(TopicId(text[0]), int(text[1:]))


def members(*ids: str, topics: str = "t") -> list[Subscription]:
    return [Subscription(each, frozenset(map(TopicId, topics))) for each in ids]


def shown(assignment: Assignment) -> dict[str, str]:
    return {member: " ".join(f"{it.topic_id}{it.partition}" for it in share) for member, share in assignment.items()}


def owning(subscriptions: list[Subscription], assignment: Assignment, generation: int = 1) -> list[Subscription]:
    return [it._replace(owned=assignment.get(it.member_id, ()), generation=generation) for it in subscriptions]


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[Counts, list[Subscription]]:
    """A group whose members own anything, rightly or not."""
    topics = draw(counts)
    everything = [TopicPartition(topic, number) for topic in "tuv" for number in range(8)]  # type: ignore[arg-type]
    subscription = st.frozensets(names, max_size=3)
    common = st.just(draw(subscription))
    ids = draw(st.lists(st.sampled_from("abcdefg"), unique=True, min_size=1))
    return topics, [
        Subscription(
            member_id,
            draw(common if alike else subscription),
            tuple(draw(st.lists(st.sampled_from(everything), unique=True, max_size=10))),
            draw(st.integers(-1, 2)),
        )
        for member_id in ids
    ]


def loads(assignment: Assignment) -> list[int]:
    return [len(share) for share in assignment.values()]


@pytest.mark.parametrize("assignor", AT_ONCE.values(), ids=AT_ONCE)
@QUICK
@given(group=groups())
def test_statement_32_each_partition_is_read_by_exactly_one_subscribed_member(
    assignor: Assignor, group: tuple[Counts, list[Subscription]]
) -> None:
    topics, subscriptions = group
    assignment = assignor(topics, subscriptions)
    subscribed = frozenset[TopicId]().union(*(it.topics for it in subscriptions))
    wanted = [TopicPartition(topic, number) for topic in subscribed for number in range(topics.get(topic, 0))]
    assert Counter(it for share in assignment.values() for it in share) == Counter(wanted)
    assert set(assignment) == {it.member_id for it in subscriptions}
    assert all(it.topic_id in each.topics for each in subscriptions for it in assignment[each.member_id])


@pytest.mark.parametrize("assignor", (CLASSIC_ASSIGNORS | SERVER_ASSIGNORS).values())
@QUICK
@given(group=groups())
def test_the_order_of_members_does_not_matter(assignor: Assignor, group: tuple[Counts, list[Subscription]]) -> None:
    topics, subscriptions = group
    assert assignor(topics, subscriptions) == assignor(topics, subscriptions[::-1])


@pytest.mark.parametrize("assignor", [round_robin, sticky, uniform])
@QUICK
@given(group=groups(alike=True))
def test_equal_subscriptions_are_balanced_within_one(
    assignor: Assignor, group: tuple[Counts, list[Subscription]]
) -> None:
    assert max(loads(assignor(*group))) - min(loads(assignor(*group))) <= 1


@pytest.mark.parametrize("assignor", KEEPING.values(), ids=KEEPING)
@QUICK
@given(group=groups())
def test_in_the_end_no_partition_could_move_to_a_reader_with_two_fewer(
    assignor: Assignor, group: tuple[Counts, list[Subscription]]
) -> None:
    topics, subscriptions = group
    assignment = assignor(topics, subscriptions)
    for reader in subscriptions:
        reachable = [
            len(share)
            for share in assignment.values()
            if any(partition.topic_id in reader.topics for partition in share)
        ]
        assert max(reachable, default=0) <= len(assignment[reader.member_id]) + 1


@pytest.mark.parametrize("assignor", KEEPING.values(), ids=KEEPING)
@QUICK
@given(partitions=st.integers(0, 20), before=st.integers(1, 7), after=st.integers(1, 7), data=st.data())
def test_no_more_partitions_move_than_balance_demands(
    assignor: Assignor, partitions: int, before: int, after: int, data: st.DataObject
) -> None:
    topics = {TopicId("t"): partitions}
    first = assignor(topics, members(*"abcdefg"[:before]))
    kept = data.draw(st.lists(st.sampled_from("abcdefg"), unique=True, min_size=after, max_size=after))
    second = assignor(topics, owning(members(*kept), first))
    least, one_more = divmod(partitions, after)
    owned = [len(first.get(member, ())) for member in kept]
    best = sum(min(count, least) for count in owned) + min(one_more, sum(count > least for count in owned))
    assert sum(len(set(share) & set(first.get(member, ()))) for member, share in second.items()) == best


@pytest.mark.parametrize("assignor", KEEPING.values(), ids=KEEPING)
@QUICK
@given(group=groups())
def test_a_settled_group_does_not_move_anything(assignor: Assignor, group: tuple[Counts, list[Subscription]]) -> None:
    topics, subscriptions = group
    settled = assignor(topics, subscriptions)
    again = assignor(topics, owning(subscriptions, settled))
    assert {member: set(share) for member, share in again.items()} == {
        member: set(share) for member, share in settled.items()
    }


@QUICK
@given(group=groups())
def test_cooperative_sticky_hands_over_only_what_nobody_owns(group: tuple[Counts, list[Subscription]]) -> None:
    topics, subscriptions = group
    assignment = cooperative_sticky(topics, subscriptions)
    owned = {it for each in subscriptions for it in each.owned}
    assert all(not (set(assignment[each.member_id]) - set(each.owned)) & owned for each in subscriptions)


@QUICK
@given(group=groups(alike=True))
def test_cooperative_sticky_is_complete_and_balanced_after_the_second_round(
    group: tuple[Counts, list[Subscription]],
) -> None:
    topics, subscriptions = group
    first = cooperative_sticky(topics, subscriptions)
    second = cooperative_sticky(topics, owning(subscriptions, first, 9))
    assert all(set(first[member]) <= set(second[member]) for member in first)
    assert sorted(loads(second)) == sorted(loads(sticky(topics, subscriptions)))


def test_range_gives_stretches_and_the_first_members_one_more() -> None:
    topics = {TopicId("t"): 7, TopicId("u"): 2}
    assert shown(range_(topics, members("c", "a", "b", topics="tu"))) == {
        "c": "t5 t6",
        "a": "t0 t1 t2 u0",
        "b": "t3 t4 u1",
    }


@QUICK
@given(partitions=st.integers(1, 12), size=st.integers(1, 6))
def test_range_lets_equally_partitioned_topics_be_joined(partitions: int, size: int) -> None:
    topics = {TopicId("t"): partitions, TopicId("u"): partitions}
    for share in range_(topics, members(*"abcdef"[:size], topics="tu")).values():
        numbers = [[it.partition for it in share if it.topic_id == topic] for topic in topics]
        assert numbers[0] == numbers[1]
        assert all(after == before + 1 for before, after in pairwise(numbers[0]))


def test_a_static_member_keeps_its_rank_under_another_member_id() -> None:
    before = [Subscription("m-7", frozenset({TopicId("t")}), instance_id="static"), *members("a")]
    after = [before[0]._replace(member_id="m-9"), *members("a")]
    topics = {TopicId("t"): 3}
    assert range_(topics, before)["m-7"] == range_(topics, after)["m-9"] == (tp("t0"), tp("t1"))


def test_round_robin_passes_over_members_that_do_not_subscribe() -> None:
    topics = {TopicId("t"): 1, TopicId("u"): 2, TopicId("v"): 3}
    group = [*members("a", topics="t"), *members("b", topics="tu"), *members("c", topics="tuv")]
    assert shown(round_robin(topics, group)) == {"a": "t0", "b": "u0", "c": "u1 v0 v1 v2"}


def test_sticky_deals_what_a_leaver_had_to_those_who_stay() -> None:
    topics = {TopicId("t"): 6}
    before = sticky(topics, members("a", "b", "c"))
    assert shown(before) == {"a": "t0 t3", "b": "t1 t4", "c": "t2 t5"}
    assert shown(sticky(topics, owning(members("a", "c"), before))) == {"a": "t0 t3 t1", "c": "t2 t5 t4"}


def test_uniform_gives_each_newcomer_a_stretch() -> None:
    assert shown(uniform({TopicId("t"): 5}, members("a", "b"))) == {"a": "t0 t1 t2", "b": "t3 t4"}


@pytest.mark.parametrize("assignor", KEEPING.values(), ids=KEEPING)
def test_the_newest_generation_owns_and_two_of_one_generation_do_not(assignor: Assignor) -> None:
    topics = {TopicId("t"): 2}
    old, new = members("a", "b")
    old, new = old._replace(owned=(tp("t1"),), generation=1), new._replace(owned=(tp("t1"),), generation=2)
    assert shown(assignor(topics, [old, new])) == {"a": "t0", "b": "t1"}
    assert shown(assignor(topics, [old._replace(generation=2), new])) == {"a": "t0", "b": "t1"}
    assert shown(assignor(topics, [old._replace(generation=3), new])) == {"a": "t1", "b": "t0"}
