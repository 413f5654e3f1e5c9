"""The metadata log of a cluster is created again under one cluster id, or the cluster gets another name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from streaming.changes.sources import several_names
from streaming.changes.state import Change, ReplicationState
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.identifiers import BrokerId, ClusterId, TopicId
from streaming.contracts.observations import ConfigOrigin, Observation, SnapshotBegin, SnapshotReason, SourceKind
from streaming.contracts.state import ConfigKey, PartitionState
from tests.changes.conftest import SECOND, Story, folded

CLUSTER, TOPIC = ClusterId("cluster-1"), TopicId("topic-1")


def before() -> Story:
    """Return a long log: large offsets and epochs, a configured minimum, a controller of a late epoch."""
    story = Story()
    story.offset = 5_000
    story.controller(3000, 40)
    story.config("2", topic="orders")
    story.snapshot([{"partition_epoch": 90, "leader_epoch": 80}, {"partition_epoch": 91, "leader_epoch": 81}])
    for number, epoch in ((0, 91), (1, 92)):
        story.later().partition(number, partition_epoch=epoch, leader_epoch=80 + number)
    return story


def again(story: Story, partitions: Sequence[dict[str, Any]], brokers: tuple[int, ...] = (1, 2, 3)) -> Story:
    """Begin the log again: a full report that says so, with small offsets and epochs."""
    story.later(30)
    story.offset = 7
    first = len(story.seen)
    story.snapshot(partitions, brokers, reason=SnapshotReason.HISTORY_LOST)
    begin = story.seen[first]
    assert isinstance(begin, SnapshotBegin)
    story.seen[first] = replace(begin, is_new_log=True)
    return story


SHRUNK = {"isr": (1, 2), "partition_epoch": 4, "leader_epoch": 1}
SAME = {"partition_epoch": 3, "leader_epoch": 0}


def applied(*batches: Sequence[Observation]) -> tuple[ReplicationState, list[Change]]:
    state, changes = ReplicationState(), list[Change]()
    for batch in batches:
        changes += folded(batch, state)[1]
    return state, changes


def partition(state: ReplicationState, number: int = 0) -> PartitionState:
    return state.topic((CLUSTER, TOPIC))[number]


def test_what_the_new_log_reports_holds_although_its_epochs_are_lower() -> None:
    story = again(before(), [SHRUNK, SAME])
    story.later().partition(1, isr=(1,), partition_epoch=4, leader_epoch=0)
    state, changes = applied(story.seen)
    assert (partition(state).isr, partition(state).partition_epoch) == ((1, 2), 4)
    assert (partition(state, 1).isr, partition(state, 1).partition_epoch) == ((1,), 4)
    events = [event for change in changes for event in change.events]
    assert not [event for event in events if event.event is EventKind.PROTOCOL_VIOLATION]
    (missed,) = (it for it in changes if any(event.event is EventKind.CHANGES_MISSED for event in it.events))
    assert missed.subject is Subject.CLUSTER
    assert "finds another metadata log" in (missed.events[0].detail or "")


def test_nobody_knows_what_was_true_between_the_two_logs() -> None:
    story = again(before(), [SHRUNK, SAME])
    story.later(10).partition(0, isr=(1, 2, 3), partition_epoch=5, leader_epoch=1)
    story.partition(1, isr=(1,), partition_epoch=4, leader_epoch=0)
    state, _ = applied(story.seen)
    assert [partition(state, number).unknown_seconds for number in (0, 1)] == [30.0, 30.0]
    assert partition(state).under_replicated_seconds == 10.0


def test_topics_and_brokers_that_the_new_log_does_not_have_are_gone() -> None:
    state, _ = applied(again(before(), [SAME], brokers=(1, 2)).seen)
    assert partition(state, 1).is_deleted
    assert not state.brokers[CLUSTER, BrokerId(3)].is_registered


def test_brokers_controllers_and_minima_of_the_new_log_are_believed() -> None:
    story = before()
    story.later().broker(2, fenced=True)
    again(story, [SAME])
    story.later().controller(3001, 2)
    story.later().broker(1, fenced=True)
    story.later().config("1", topic="orders")
    state, _ = applied(story.seen)
    assert [state.brokers[CLUSTER, BrokerId(broker)].is_fenced for broker in (1, 2)] == [True, False]
    cluster = state.clusters[CLUSTER]
    assert (cluster.controller, cluster.controller_epoch) == (3001, 2)
    assert partition(state).min_isr_configured == 1
    assert state.configs[ConfigKey(CLUSTER, "orders", ConfigOrigin.LOG)].value == 1


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_a_second_collector_still_reports_of_the_old_log_is_dropped(is_whole: bool) -> None:  # noqa: FBT001
    ours, other = before(), Story("metadata_log:b")
    other.offset, other.now = 5_010, ours.now + 5 * SECOND
    late = [other.partition(0, isr=(3,), leader=3, partition_epoch=99, leader_epoch=99)]
    if is_whole:
        other.snapshot([{"isr": (3,), "leader": 3, "partition_epoch": 99, "leader_epoch": 99}, SAME])
        late = other.seen
    again(ours, [SHRUNK, SAME])
    state, _ = applied(ours.seen, late)
    assert partition(state).isr == (1, 2)


def test_the_second_collector_finds_the_same_new_log_and_the_third_log_is_another_one() -> None:
    ours, other = before(), Story("metadata_log:b")
    other.offset, other.now = 4_000, ours.now
    other.heartbeat()
    again(ours, [SHRUNK, SAME])
    since = ours.now
    other.now = since - 27 * SECOND
    again(other, [SHRUNK, SAME])

    state, changes = applied(ours.seen, other.seen)

    assert state.clusters[CLUSTER].metadata_log_since == since
    kinds = [event.event for change in changes for event in change.events]
    assert kinds.count(EventKind.CHANGES_MISSED) == 1

    again(ours, [SAME, SAME])
    state, _ = applied(ours.seen, other.seen)
    assert state.clusters[CLUSTER].metadata_log_since == ours.now
    assert partition(state).isr == (1, 2, 3)


def test_a_reader_of_the_old_log_proves_nothing_about_the_new_one() -> None:
    ours, other = before(), Story("metadata_log:b")
    other.offset, other.now = 9_000, ours.now
    other.heartbeat()
    again(ours, [SAME, SAME])
    ours.later().config("1", topic="orders")
    state, _ = applied(other.seen, ours.seen)
    assert partition(state).min_isr_configured == 1, "the other reader's offset is of the old log"
    assert state.clusters[CLUSTER].metadata_log_since == ours.now - SECOND


def test_a_poll_in_between_does_not_hide_the_new_log() -> None:
    ours, poll = before(), Story("poll:a", SourceKind.POLL)
    poll.now = ours.now + 100 * SECOND
    poll.snapshot([{"isr": (1, 3), "leader_epoch": 81, "partition_epoch": None}] * 2)
    old, ours.now = list(ours.seen), poll.now
    again(ours, [SHRUNK, SAME])
    state, _ = applied(old, poll.seen, ours.seen[len(old) :])
    assert partition(state).isr == (1, 2)
    assert state.clusters[CLUSTER].primary_source is SourceKind.METADATA_LOG


def named(name: str, observations: Iterable[Observation]) -> list[Observation]:
    return [replace(observed, cluster=name) for observed in observations]


def name_after(*batches: Sequence[Observation]) -> str:
    return applied(*batches)[0].clusters[CLUSTER].cluster


def test_the_next_full_report_gives_the_cluster_its_new_name(story: Story) -> None:
    story.snapshot()
    before = len(story.seen)
    story.later(30).snapshot(reason=SnapshotReason.PERIODIC)
    _, changes = folded([*story.seen[:before], *named("payments", story.seen[before:])])
    assert name_after(story.seen[:before], named("payments", story.seen[before:])) == "payments"
    steps = [change for change in changes if change.cluster_after is not None]
    assert steps[-1].cluster_after is not None
    assert steps[-1].cluster_after.cluster == "payments", "the tables get it, too"
    assert not steps[-1].events


def test_two_collectors_with_two_names_do_not_take_turns(story: Story) -> None:
    other = Story("metadata_log:b")
    story.snapshot()
    other.later(20).snapshot(reason=SnapshotReason.START)
    story.later(40).heartbeat()
    old = list(story.seen)
    other.later(30).snapshot(reason=SnapshotReason.PERIODIC)
    late = other.seen[-5:]
    assert name_after(old, named("payments", other.seen)) == "orders-eu"
    assert name_after(old[:-1], named("payments", [*other.seen[:-5], *late])) == "orders-eu"
    other.later(120).snapshot(reason=SnapshotReason.PERIODIC)
    assert name_after(old, named("payments", other.seen)) == "payments", "nobody uses the first name any more"


def test_two_collectors_with_two_names_are_a_sentence_while_both_report(story: Story) -> None:
    other, state = Story("metadata_log:b"), ReplicationState()
    story.snapshot()
    other.later(20).snapshot(reason=SnapshotReason.START)
    folded(story.seen, state)
    assert [*several_names(state.sources.values())] == []
    folded(named("payments", other.seen), state)
    (cluster_id,) = {each.cluster_id for each in story.seen}
    names = "'orders-eu' by metadata_log:a and 'payments' by metadata_log:b"
    sentence = f"cluster {cluster_id} is called {names}, and counts as one: collect it once, or by one name"
    assert [*several_names(state.sources.values())] == [sentence]
    other.later(120).heartbeat()
    folded(named("payments", other.seen[-1:]), state)
    assert [*several_names(state.sources.values())] == [], "the first one was renamed, or has ended"


def test_two_collectors_with_two_names_do_not_rename_the_brokers_in_turn(story: Story) -> None:
    other = Story("metadata_log:b")
    story.snapshot()
    other.later(20).snapshot(reason=SnapshotReason.START)
    story.later(40).snapshot(reason=SnapshotReason.PERIODIC)
    other.later(40).snapshot(reason=SnapshotReason.PERIODIC)
    state = ReplicationState()
    steps = [
        change.broker_after
        for batch in (story.seen, named("payments", other.seen))
        for change in folded(batch, state)[1]
        if change.broker_after is not None
    ]

    assert state.brokers
    assert len(steps) == len(state.brokers), "each is seen for the first time, and then no more"
    assert {broker.cluster for broker in state.brokers.values()} == {"orders-eu"}

    other.later(120).snapshot(reason=SnapshotReason.PERIODIC)
    folded(named("payments", other.seen), state)
    assert {broker.cluster for broker in state.brokers.values()} == {"payments"}
