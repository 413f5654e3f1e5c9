"""What a view shows, what two of them allow to infer, and which is in doubt."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, ClusterId, TopicId, synthetic_topic_id
from streaming.contracts.observations import PartitionObserved, SnapshotReason, SourceKind
from streaming.sources.admin_topic_ids import topic_id
from streaming.sources.admin_view import (
    ClusterView,
    PartitionView,
    _in_order,
    inferred_cause,
    may_be_stale,
    read_view,
    snapshot,
    steps,
)
from tests.blocks import singly

ENVELOPE = {
    "cluster_id": "C",
    "cluster": "test",
    "source": "admin:test",
    "authority": SourceKind.POLL,
    "occurred_not_before": 1,
    "occurred_not_after": 2,
    "collected_at": 2,
}


def view(isr: tuple[int, ...], *, leader: int = 1, replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionView:
    return PartitionView(tuple(map(BrokerId, replicas)), tuple(map(BrokerId, isr)), BrokerId(leader))


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
    ],
)
def test_two_polls_infer_no_more_than_they_show(
    before: PartitionView | None, after: PartitionView, cause: Cause | None
) -> None:
    assert inferred_cause(before, after) is cause


@given(st.permutations([1, 2, 3]), st.permutations([1, 2, 3]))
def test_another_order_of_the_same_isr_is_no_change(first: list[int], second: list[int]) -> None:
    assert _in_order(first, [3, 1, 2]) == _in_order(second, [3, 1, 2]) == (3, 1, 2)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("O/ZwXDSNQomtygFJ/y+J+g", "O_ZwXDSNQomtygFJ_y-J-g"),
        ("AAAAAAAAAAAAAAAAAAAAAA", synthetic_topic_id(ClusterId("C"), "orders")),
    ],
)
def test_topic_ids_are_spelled_as_kafka_does_and_made_up_where_there_are_none(told: str, expected: str) -> None:
    assert topic_id(told, ClusterId("C"), "orders") == expected


def test_steps_and_snapshots_agree_on_what_changed() -> None:
    ids = {"orders": TopicId("x")}
    before = ClusterView(ClusterId("C"), 1, {}, {"orders": {0: view((1,)), 1: view((1, 2))}}, ids)
    after = ClusterView(ClusterId("C"), 1, {}, {"orders": {0: view((1, 2)), 1: view((1, 2)), 2: view((1,))}}, ids)
    told = [item for item in steps(before, after, ENVELOPE) if isinstance(item, PartitionObserved)]
    marked = snapshot(before, after, ENVELOPE, snapshot_id="s", reason=SnapshotReason.PERIODIC)
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
        (cast(-1, (1, 2), 3, 1), False),
    ],
)
def test_an_answer_that_may_be_old_gets_a_second_look(answer: ClusterView, *, doubtful: bool) -> None:
    """Broker 1 said that 1 and 2 are alive: 3 may be cut off, and who misses something may lag.

    Good news by another broker than before may be old news.
    """
    assert may_be_stale(cast(1, (1, 2), 3, 1), answer) is doubtful


class Client:
    """Answers with the metadata of one topic; a partition may have no replicas."""

    def __init__(self, *replicas: list[int]) -> None:
        self.replicas = replicas

    def list_topics(self, **_: Any) -> Any:
        partitions = {
            number: SimpleNamespace(replicas=listed, isrs=listed, leader=listed[0] if listed else -1)
            for number, listed in enumerate(self.replicas)
        }
        topics = {"orders": SimpleNamespace(partitions=partitions)}
        return SimpleNamespace(cluster_id="C", orig_broker_id=1, brokers={}, topics=topics)


@pytest.mark.parametrize("without", [0, 1, 2])
def test_a_partition_that_is_answered_without_replicas_stays_as_it_was_and_so_do_the_others(without: int) -> None:
    state, before = ReplicationState(), None
    for number, incomplete in enumerate((None, without, without), start=1):
        client: Any = Client(*([] if partition == incomplete else [1, 2] for partition in range(3)))
        now = replace(read_view(client, cluster="test", seconds=1.0), topic_ids={"orders": TopicId("x")})
        envelope = ENVELOPE | dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), number)
        report = snapshot(before, now, envelope, snapshot_id="s", reason=SnapshotReason.PERIODIC)
        state.apply(fold(state, report).touched)
        before = now

    assert sorted(each.partition for each in state.partitions() if not each.is_deleted) == [0, 1, 2]
