"""The steps of a consumer group (KIP-848), and the states of a classic one, as tables. Values in, values out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.identifiers import TopicId, TopicPartition
from streaming.model.constants import Error
from streaming.model.coordinators.group_log import Group
from streaming.model.coordinators.group_state import (
    MAY_FOLLOW,
    ClassicGroup,
    ConsumerGroup,
    GroupState,
    Member,
    MemberState,
    fence,
    reconcile,
    retarget,
    with_member,
    without_member,
)
from streaming.model.invariants.groups import INVARIANTS
from tests.examples import examples

T = TopicId("t")
P0, P1, P2 = (TopicPartition(T, number) for number in range(3))
COUNTS = {T: 3}

Partitions = frozenset[TopicPartition]


def member(name: str, *assigned: TopicPartition, epoch: int = 5, revoking: Partitions = frozenset()) -> Member:
    state = MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE
    return Member(name, frozenset({T}), None, 1_000, epoch, epoch - 1, state, frozenset(assigned), revoking)


def group(a_target: set[TopicPartition], *members: Member, epoch: int = 6) -> ConsumerGroup:
    return ConsumerGroup(epoch, (), epoch, {"a": frozenset(a_target)}, {it.member_id: it for it in members})


@pytest.mark.parametrize(
    ("before", "target", "owned", "after"),
    [
        # nothing new: only the epoch moves
        (member("a", P0), {P0}, {P0}, member("a", P0, epoch=6)),
        # to give up: it stays in its epoch until it has
        (member("a", P0, P1), {P0}, {P0, P1}, member("a", P0, revoking=frozenset({P1}))),
        # to give up, but it does not have it any more
        (member("a", P0, P1), {P0}, {P0}, member("a", P0, epoch=6)),
        # it does not say what it has: it may still have it
        (member("a", P0, P1), {P0}, None, member("a", P0, revoking=frozenset({P1}))),
        # to give up and to get: first give up
        (member("a", P0, P1), {P0, P2}, {P0, P1}, member("a", P0, revoking=frozenset({P1}))),
        # given up: now it gets
        (member("a", P0, revoking=frozenset({P1})), {P0, P2}, {P0}, member("a", P0, P2, epoch=6)),
        # not given up yet
        (
            member("a", P0, revoking=frozenset({P1})), {P0, P2}, {P0, P1},
            member("a", P0, revoking=frozenset({P1})),
        ),
        # to get something that is free
        (member("a", P0), {P0, P2}, {P0}, member("a", P0, P2, epoch=6)),
    ],
)  # fmt: skip
def test_a_member_gives_up_before_it_gets(
    before: Member, target: set[TopicPartition], owned: set[TopicPartition] | None, after: Member
) -> None:
    assert reconcile(group(target, before), before, None if owned is None else frozenset(owned)) == after


def test_what_another_member_has_not_given_up_is_waited_for() -> None:
    waiting = member("a", P0)
    other = member("b", P1, revoking=frozenset({P2}))
    after = reconcile(group({P0, P2}, waiting, other), waiting, frozenset({P0}))
    assert (after.state, after.epoch, after.assigned) == (MemberState.UNRELEASED_PARTITIONS, 6, {P0})
    released = group({P0, P2}, after, other._replace(revoking=frozenset()))
    assert reconcile(released, after, None).assigned == {P0, P2}


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (5, None, Error.NONE),
        (4, {P0}, Error.NONE),
        (4, {P0, P1}, Error.FENCED_MEMBER_EPOCH),
        (4, None, Error.FENCED_MEMBER_EPOCH),
        (3, {P0}, Error.FENCED_MEMBER_EPOCH),
        (6, {P0}, Error.FENCED_MEMBER_EPOCH),
    ],
)
def test_a_member_states_its_epoch_or_the_one_before_if_its_answer_was_lost(
    epoch: int, owned: set[TopicPartition] | None, error: Error
) -> None:
    assert fence(member("a", P0), epoch, None if owned is None else frozenset(owned)) is error
    assert fence(None, epoch, None) is Error.UNKNOWN_MEMBER_ID


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(st.tuples(st.sampled_from(["join", "leave", "beat", "give up", "grow"]), NAMES), max_size=40)


@settings(max_examples=examples(20))
@given(steps=STEPS)
def test_whatever_members_do_nobody_has_what_another_has(steps: list[tuple[str, str]]) -> None:
    """Members join, leave, are slow to give up; topics grow. In the end, beating, everybody reaches the target."""
    known, counts = Group("g"), {T: 3}
    reads: dict[str, Partitions] = {}
    epochs = []
    for what, name in [*steps, *((it, each) for _ in range(4) for each in "abc" for it in ("give up", "beat"))]:
        known.consumer = step(known.consumer or ConsumerGroup(), counts, reads, what, name)
        if what == "grow":
            counts = {T: counts[T] + 1}
        epochs.append(known.consumer.epoch)
        for _, complaints in INVARIANTS:
            assert list(complaints(known)) == []
    assert all(before <= after for before, after in pairwise(epochs))
    assert known.consumer is not None
    assert known.consumer.state in {GroupState.STABLE, GroupState.EMPTY}


def step(
    now: ConsumerGroup, counts: dict[TopicId, int], reads: dict[str, Partitions], what: str, name: str
) -> ConsumerGroup:
    there = now.members.get(name)
    if what == "join" and there is None:
        now = with_member(now, Member(name, frozenset({T}), None, 1_000))
        now, reads[name] = retarget(now._replace(epoch=now.epoch + 1), counts, 0), frozenset()
    elif what == "leave" and there is not None:
        now = without_member(now, name)
        return retarget(now, counts if now.members else {}, 0)
    elif what == "give up" and there is not None:
        reads[name] &= there.assigned
        return now
    if what in {"join", "beat"} and (there := now.members.get(name)) is not None:
        if tuple(sorted(counts.items())) != now.counts:
            now = retarget(now._replace(epoch=now.epoch + 1), counts, 0)
        after = reconcile(now, there, reads[name])
        reads[name] |= after.assigned
        return with_member(now, after)
    return now


@pytest.mark.parametrize("after", MAY_FOLLOW)
@pytest.mark.parametrize("before", MAY_FOLLOW)
def test_a_classic_group_takes_the_steps_of_the_table_only(before: GroupState, after: GroupState) -> None:
    classic = ClassicGroup()
    classic.state = before
    if before in MAY_FOLLOW[after]:
        classic.move(7, after)
        assert (classic.state, classic.since_ms) == (after, 7)
    else:
        with pytest.raises(AssertionError):
            classic.move(7, after)
