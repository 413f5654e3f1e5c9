"""What a view shows, what two of them allow to infer, and which is in doubt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, ClusterId, TopicId
from streaming.contracts.observations import PartitionObserved, SnapshotReason
from streaming.sources.polling.view import (
    ClusterView,
    PartitionView,
    Uncertainty,
    goes_back,
    has_same_members,
    in_order,
    inferred_cause,
    may_be_stale,
    snapshot,
    steps,
)
from tests.blocks import singly
from tests.sources.conftest import envelope


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def view(
    isr: tuple[int, ...],
    leader: int = 1,
    replicas: tuple[int, ...] = (1, 2, 3),
    epoch: int | None = None,
    **fields: Any,
) -> PartitionView:
    return PartitionView(ids(*replicas), ids(*isr), BrokerId(leader), leader_epoch=epoch, **fields)


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (None, view((1,)), Cause.CREATED),
        (view((1,)), view((1,)), None),
        (view((1,)), view((1, 2)), Cause.EXPAND),
        (view((1, 2)), view((1,)), Cause.UNKNOWN),
        (view((1, 2)), view((2,), leader=2), Cause.UNKNOWN),
        (view((1,)), view((1, 2), leader=2), Cause.UNKNOWN),
        (view((1, 2)), view((1, 3)), Cause.UNKNOWN),
        (view((1, 2)), view((1, 2, 4), replicas=(1, 2, 3, 4)), Cause.REASSIGNMENT),
        (view((1, 2), epoch=3), view((1, 2), epoch=5), Cause.UNKNOWN),
        (view((1,), elr=(2,)), view((1,)), Cause.UNKNOWN),
        (view((1, 2)), view((1,), offline=(2,)), Cause.DIR_FAILURE),
        (view((1, 2)), view((2,), leader=2, offline=(1, 3)), Cause.DIR_FAILURE),
        (view((1, 2, 3)), view((1,), offline=(2,)), Cause.UNKNOWN),  # 3 left for another reason
        (view((1, 4), replicas=(1, 4)), view((1,), replicas=(1, 4), offline=(4,)), Cause.UNKNOWN),  # 4 is not alive
        (view((1, 2)), view((1, 2), offline=(3,)), None),
    ],
)
def test_two_polls_infer_no_more_than_they_show(
    before: PartitionView | None, after: PartitionView, cause: Cause | None
) -> None:
    assert inferred_cause(before, after, ids(1, 2, 3)) is cause


@given(st.permutations([1, 2, 3]), st.permutations([1, 2, 3]))
def test_another_order_of_the_same_isr_is_no_change(first: list[int], second: list[int]) -> None:
    assert in_order(first, [3, 1, 2]) == in_order(second, [3, 1, 2]) == (3, 1, 2)


def test_steps_and_snapshots_agree_on_what_changed() -> None:
    ids = {"orders": TopicId("x")}
    before = ClusterView(ClusterId("C"), 1, {}, {"orders": {0: view((1,)), 1: view((1, 2))}}, ids)
    after = ClusterView(ClusterId("C"), 1, {}, {"orders": {0: view((1, 2)), 1: view((1, 2)), 2: view((1,))}}, ids)
    told = [item for item in steps(before, after, envelope()) if isinstance(item, PartitionObserved)]
    marked = snapshot(before, after, envelope(), snapshot_id="s", reason=SnapshotReason.PERIODIC)
    whole = [item for item in singly(marked) if isinstance(item, PartitionObserved)]
    expected = [(0, Cause.EXPAND), (2, Cause.CREATED)]
    assert expected == [(item.partition, item.cause) for item in told]
    assert expected == [(item.partition, item.cause) for item in whole if item.cause]
    assert [item.partition for item in whole if item.cause is None] == [0, 1, 2]


def cast(answered_by: int, brokers: tuple[int, ...], *partitions: int) -> ClusterView:
    topics = {f"topic-{number}": dict.fromkeys(range(count), view((1,))) for number, count in enumerate(partitions)}
    return ClusterView(ClusterId("C"), answered_by, {BrokerId(broker): ("h", 1) for broker in brokers}, topics)


@pytest.mark.parametrize(
    ("answer", "doubtful"),
    [
        (cast(2, (1, 2), 3, 1), False),
        (cast(2, (1, 2), 3, 1, 1), False),
        (cast(1, (1, 2, 3), 4, 1), False),
        (cast(2, (1, 2, 3), 4, 1), True),
        (cast(2, (1,), 4, 1), False),
        (cast(2, (1, 2), 3), True),
        (cast(2, (1, 2), 2, 1), True),
        (cast(3, (1, 2, 3), 3, 1), True),
        (cast(-2, (1, 2), 3, 1), False),
        (cast(-2, (1, 2, 3), 3, 1), True),
    ],
)
def test_an_answer_that_may_be_old_gets_a_second_look(answer: ClusterView, *, doubtful: bool) -> None:
    """Broker 1 said that 1 and 2 are alive: 3 may be cut off, and who misses something may lag.

    Good news by another broker than before may be old news.
    """
    assert may_be_stale(cast(1, (1, 2), 3, 1), answer) is doubtful


@pytest.mark.parametrize(("brokers", "rechecks"), [((2,), 3), ((2, 3), 6)])
def test_a_view_is_believed_after_more_rechecks_where_brokers_disagree(brokers: tuple[int, ...], rechecks: int) -> None:
    before, doubt = cast(1, (1, 2, 3), 3), Uncertainty()
    answers = [cast(broker, (1, 2, 3), broker) for _ in range(4) for broker in brokers]
    assert [doubt.ends_with(before, answer) for answer in answers[: rechecks + 1]] == [False] * rechecks + [True]


def one_topic(answered_by: int, partition: PartitionView, topic_id: str = "x") -> ClusterView:
    brokers = {BrokerId(broker): ("h", 1) for broker in (1, 2)}
    return ClusterView(ClusterId("C"), answered_by, brokers, {"orders": {0: partition}}, {"orders": TopicId(topic_id)})


@pytest.mark.parametrize(
    ("was", "now", "topic_id", "doubtful", "back"),
    [
        (view((1,), epoch=3), view((1, 2), epoch=3), "x", True, False),
        (view((1,), epoch=3), view((1, 2), epoch=4), "x", False, False),
        (view((1,), epoch=None), view((1, 2), epoch=4), "x", True, False),
        (view((1, 2), epoch=3), view((1,), epoch=2), "x", True, True),
        (view((1, 2), epoch=3), view((1,), epoch=2), "another", True, False),
        (view((1, 2), epoch=3), view((1, 2), epoch=3), "another", True, False),
        (view((), leader=-1, epoch=3), view((1,), epoch=4), "x", False, False),
        (view((), leader=-1, epoch=3), view((1,), epoch=3), "x", True, False),
    ],
)
def test_leader_epochs_decide_which_view_is_older(
    was: PartitionView, now: PartitionView, topic_id: str, *, doubtful: bool, back: bool
) -> None:
    before, after = one_topic(1, was), one_topic(2, now, topic_id)
    assert may_be_stale(before, after) is doubtful
    assert goes_back(before, after) is back


def test_a_topic_that_only_another_broker_lists_may_have_been_deleted() -> None:
    before = one_topic(1, view((1, 2)))
    listed = {**before.topics, "payments": {0: view((1, 2))}}
    after = replace(before, topics=listed, topic_ids={**before.topic_ids, "payments": TopicId("y")})
    assert not may_be_stale(before, after)
    assert may_be_stale(before, replace(after, answered_by=2))


def test_what_a_poll_reports_of_eligible_replicas_is_the_state_and_one_that_does_not_know_them_leaves_them() -> None:
    state = ReplicationState()

    def elr_after(
        before: ClusterView | None, partition: PartitionView, second: int, *, has_elr: bool
    ) -> tuple[ClusterView, tuple[int, ...]]:
        after = replace(one_topic(1, partition), has_elr=has_elr)
        if before is not None and has_same_members(before, after):
            observed = steps(before, after, envelope(second))
        else:
            observed = snapshot(
                before, after, envelope(second), snapshot_id=f"{second}", reason=SnapshotReason.PERIODIC
            )
        state.apply(fold(state, observed).touched)
        (partition_state,) = state.partitions()
        return after, partition_state.elr

    first, none = elr_after(None, view((1,), elr=()), 1, has_elr=False)
    second, eligible = elr_after(first, view((1,), elr=(2,)), 2, has_elr=True)
    third, unknown = elr_after(second, view((1,), leader=1, epoch=4), 3, has_elr=False)
    fourth, known_again = elr_after(third, view((1,), epoch=4), 4, has_elr=True)
    _, of_those_in_the_isr = elr_after(
        elr_after(fourth, view((1,), elr=(2, 3), epoch=4), 5, has_elr=True)[0], view((1, 2), epoch=5), 6, has_elr=False
    )

    assert (none, eligible, unknown, known_again, of_those_in_the_isr) == ((), (2,), (2,), (), (3,))


def test_a_broker_that_is_started_again_with_another_rack_or_none_has_that() -> None:
    state, before, found = ReplicationState(), None, []
    for second, rack in enumerate(({BrokerId(1): "a"}, {BrokerId(1): "b"}, {}), start=1):
        after = replace(one_topic(1, view((1,))), brokers={BrokerId(1): ("h", 9092)}, racks=rack)
        if before is not None and has_same_members(before, after):
            observed = steps(before, after, envelope(second))
        else:
            observed = snapshot(
                before, after, envelope(second), snapshot_id=f"{second}", reason=SnapshotReason.PERIODIC
            )
        state.apply(fold(state, observed).touched)
        before = after
        found += [broker.rack for broker in state.brokers.values()]
    assert found == ["a", "b", None]


@pytest.mark.parametrize("without", [0, 1, 2])
def test_a_partition_that_is_answered_without_replicas_stays_as_it_was_and_so_do_the_others(without: int) -> None:
    state, before = ReplicationState(), None
    for number, incomplete in enumerate((None, without, without), start=1):
        parts = {number: view((1, 2), replicas=(1, 2)) for number in range(3) if number != incomplete}
        ids = {"orders": TopicId("x")}
        now = ClusterView(ClusterId("C"), 1, {}, {"orders": parts}, ids, partition_counts={"orders": 3})
        report = snapshot(before, now, envelope(number), snapshot_id="s", reason=SnapshotReason.PERIODIC)
        state.apply(fold(state, report).touched)
        before = now
    assert sorted(each.partition for each in state.partitions() if not each.is_deleted) == [0, 1, 2]
