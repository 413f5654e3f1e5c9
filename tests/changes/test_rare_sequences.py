"""Sequences in which two rules meet: what is reported must be true of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from streaming.changes.advice.restart_safety import restart_advice
from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.incidents.context import ChangeRow
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import BrokerId, ClusterId
from streaming.contracts.observations import (
    BrokerObserved,
    Observation,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
)
from streaming.delta.changes.log import changes_to_arrow
from streaming.delta.incidents.rows import rows_of
from tests.changes.conftest import FENCED, PROVEN, STOPPED, Story, folded, only
from tests.changes.faults import observed, of, played
from tests.changes.test_diagnosis import proven_late, restart
from tests.changes.test_incidents import named, standing

CLUSTER = ClusterId("cluster-1")
INFERRED = {"cause": Cause.UNKNOWN, "evidence": Evidence.INFERRED}
POLLED: dict[str, Any] = {"leader_epoch": None, "partition_epoch": None}


def applied(seen: Iterable[Observation]) -> tuple[ReplicationState, tuple[ChangeRow, ...]]:
    state, changes = folded(seen)
    return state, tuple(rows_of(changes_to_arrow(changes), 1))


def full_report(
    story: Story, partitions: Sequence[dict[str, Any]], brokers: Sequence[dict[str, Any]], reason: SnapshotReason
) -> None:
    """Brokers first, as the sources list them."""
    story.tell(SnapshotBegin, snapshot_id="x", reason=reason)
    for fields in brokers:
        story.tell(BrokerObserved, in_snapshot=True, **fields)
    story.block(partitions)
    counts = {"topic_ids": ("topic-1",), "partition_counts": (len(partitions),)}
    story.tell(SnapshotEnd, snapshot_id="x", brokers=tuple(fields["broker"] for fields in brokers), **counts)


def poll(story: Story, partition: dict[str, Any], brokers: Iterable[int]) -> None:
    listed = [{"broker": broker, "host": f"h{broker}", "port": 9092} for broker in brokers]
    full_report(story, [{**POLLED, **partition}], listed, SnapshotReason.PERIODIC)


def beats(story: Story, minutes: int) -> None:
    for _ in range(minutes):
        story.later(60).heartbeat()


@pytest.mark.parametrize("between", [2, 6, 120])
def test_the_proof_of_one_brokers_stop_says_nothing_of_another_one_that_crashed(between: int) -> None:
    faults = [*restart("stop", 3, 10, 20), *restart("stop", 5, 60, 20), *of("kill", 1, at=400)]
    topic = {"assignments": [[1, 3, 2], [3, 5, 2], [5, 1, 2], [1, 5, 4], [3, 1, 6]] * 3, "partitions": 15}
    rows = played([*faults, *of("stop", 2, at=400 + between)], 620, elr=True, min_insync_replicas=1, **topic)
    assert ("broker_loss", [1]) in named(rows)


@pytest.mark.parametrize("elr", [False, True])
def test_an_unclean_election_is_one_and_is_counted_once(*, elr: bool) -> None:
    """With eligible leader replicas nobody leaves the ISR by it; the leader is elected once more, cleanly, at 85 s."""
    faults = [*restart("kill", 2, 5, 35), *of("kill", 1, at=20), *restart("stop", 2, 70, 15)]
    topic = {"partitions": 1, "replication_factor": 2, "min_insync_replicas": 1, "assignments": [[1, 2]]}
    state, rows = applied(observed(sorted(faults), 120, elr=elr, unclean_leader_election=True, **topic))
    assert only(state).unclean_elections == 1
    (incident,) = standing(rows)
    assert incident["incident_class"] == "unclean_election"
    assert "copy the logs of brokers 1 and 2" in incident["next_step"]


def test_a_poll_ends_a_reassignment_that_the_log_has_seen_begin(story: Story) -> None:
    story.snapshot(brokers=(1, 2, 3, 4))
    moving = {"adding_replicas": (4,), "removing_replicas": (3,), "partition_epoch": 1}
    story.later().partition(replicas=(1, 2, 3, 4), **moving, cause=Cause.REASSIGNMENT, **PROVEN)
    poller = Story("admin:b", SourceKind.POLL)
    poller.now = story.now
    poller.later(70)
    poll(poller, {"replicas": (1, 2, 4), "isr": (1, 2, 4)}, (1, 2, 3, 4))
    poller.later(30)
    poll(poller, {"replicas": (1, 2, 4), "isr": (1, 2), **INFERRED}, (1, 2, 3))

    state, rows = applied([*story.seen, *poller.seen])

    assert (only(state).adding_replicas, only(state).removing_replicas) == ((), ())
    assert only(state).is_under_replicated
    assert ("broker_loss", [4]) in named(rows)


def test_a_poll_does_not_know_that_a_broker_is_shutting_down(story: Story) -> None:
    story.snapshot()
    story.later(10).broker(3, in_controlled_shutdown=True)
    story.partition(isr=(1, 2), partition_epoch=1, **STOPPED)
    story.later().broker(3, in_controlled_shutdown=True, fenced=True)
    poller = Story("admin:b", SourceKind.POLL)
    poller.now = story.now
    poller.later(70)
    poll(poller, {}, (1, 2, 3))
    beats(poller, 30)
    poller.later(5)
    poll(poller, {"isr": (1, 2), **INFERRED}, (1, 2))

    state, rows = applied([*story.seen, *poller.seen])

    assert named(rows) == [("controlled_shutdown", [3]), ("broker_loss", [3])]
    assert SuspectTally(state.partitions()).suspect_scores(CLUSTER, state.brokers.values())[BrokerId(3)] == 1


@pytest.mark.parametrize("isr", [(3,), ()])
def test_a_reassignment_between_two_polls_hides_no_partition_that_nobody_leads(isr: tuple[int, ...]) -> None:
    partition = {"replicas": (3, 2), "isr": isr, "leader": -1}
    poller = Story("admin:a", SourceKind.POLL)
    poll(poller, {"replicas": (1, 2), "isr": (1, 2)}, (1, 2, 3))
    poller.later(5)
    poll(poller, {**partition, "cause": Cause.REASSIGNMENT, "evidence": Evidence.INFERRED}, (1, 2))
    for _ in range(10):
        poller.later(30)
        poll(poller, partition, (1, 2))
    state, rows = applied(poller.seen)
    assert only(state).is_offline
    assert [(row["incident_class"], row["closed_at"]) for row in standing(rows)] == [("broker_loss", None)]


@pytest.mark.parametrize("announced", [False, True])
def test_a_broker_that_only_registers_is_not_back(story: Story, *, announced: bool) -> None:
    """KRaft brokers register before they recover their logs; one that fails there is fenced for good."""
    story.snapshot()
    story.later(5)
    extra = [story.lease(3, 30 * 60)] if announced else []
    story.later(60)
    if announced:
        story.partition(isr=(1, 2), partition_epoch=1, **FENCED)
        story.broker(3, fenced=True)
    else:
        story.broker(3, in_controlled_shutdown=True)
        story.partition(isr=(1, 2), partition_epoch=1, **STOPPED)
        story.later().broker(3, in_controlled_shutdown=True, fenced=True)
    story.later(20).broker(3, fenced=True, broker_epoch=50)
    beats(story, 60)

    _, rows = applied([*story.seen[:6], *extra, *story.seen[6:]])

    assert named(rows) == [("broker_loss", [3])]


def test_lag_that_lasts_longer_than_the_announced_work_is_not_planned_any_more(story: Story) -> None:
    story.snapshot()
    story.later(5)
    extra = [story.lease(3, 30 * 60)]
    story.later(60).partition(isr=(1, 2), partition_epoch=1, cause=Cause.LAG, evidence=Evidence.INFERRED)
    shrunk = len(story.seen)
    beats(story, 25)
    within = len(story.seen)
    beats(story, 60)
    seen = [*story.seen[: shrunk - 1], *extra, *story.seen[shrunk - 1 :]]
    assert [kind for kind, _ in named(applied(seen[: within + 1])[1])] == ["controlled_shutdown"]
    assert named(applied(seen)[1]) == [("slow_follower", [1, 3])]


def test_no_broker_is_safe_to_stop_while_it_is_unknown_whether_writes_are_refused(story: Story) -> None:
    story.snapshot(brokers=(1, 2, 3))
    story.later().partition(isr=(1,), partition_epoch=1, cause=Cause.LAG, evidence=Evidence.INFERRED)
    state, _ = applied(story.seen)
    advice = restart_advice(list(state.brokers.values()), state.clusters[CLUSTER], SuspectTally(state.partitions()))
    assert {broker: one.is_safe_to_stop for broker, one in advice.items()} == {1: False, 2: None, 3: None}
    assert {one.restart_order for one in advice.values()} == {None}


def test_who_is_down_in_a_full_report_after_a_gap_was_lost_and_did_not_lag(story: Story) -> None:
    story.snapshot()
    story.later(300)
    story.offset += 500
    brokers = [
        {"broker": broker, "broker_epoch": 5, "fenced": broker == 3, "in_controlled_shutdown": False}
        for broker in (1, 2, 3)
    ]
    full_report(story, [{"isr": (1, 2), "partition_epoch": 1}], brokers, SnapshotReason.HISTORY_LOST)
    beats(story, 5)
    assert named(applied(story.seen)[1]) == [("broker_loss", [3])]


@pytest.mark.parametrize("end", ["deleted", "unseen"])
def test_a_reassignment_ends_with_its_topic_and_also_where_nobody_has_seen_it(story: Story, end: str) -> None:
    story.snapshot(brokers=(1, 2, 3, 4))
    moving = {"adding_replicas": (4,), "removing_replicas": (3,), "partition_epoch": 1}
    story.later().partition(replicas=(1, 2, 3, 4), **moving, cause=Cause.REASSIGNMENT, **PROVEN)
    story.later(300)
    if end == "deleted":
        story.removed()
    else:
        after = {"replicas": (1, 2, 4), "isr": (1, 2, 4), "partition_epoch": 3}
        story.snapshot([after], brokers=(1, 2, 3, 4), reason=SnapshotReason.HISTORY_LOST)
    beats(story, 60)

    (incident,) = standing(applied(story.seen)[1])

    assert incident["incident_class"] == "reassignment"
    assert incident["closed_at"] is not None


def test_a_rack_of_which_one_broker_was_stopped_was_not_lost() -> None:
    racks = {"1": "a", "2": "a", "3": "b", "4": "b", "5": "c", "6": "c"}
    assignments = [[1, 3, 5], [3, 5, 2], [4, 6, 1], [3, 6, 2], [1, 4, 6]] * 3
    faults = [*of("kill", 1, at=5), *of("stop", 2, at=9)]
    rows = proven_late(played(faults, 60, partitions=15, assignments=assignments, racks=racks), 2)
    assert named(rows) == [("broker_loss", [1])]


def test_a_topic_that_is_created_while_a_broker_is_down_is_part_of_its_loss(story: Story) -> None:
    story.snapshot()
    story.config("3")
    story.later(5).partition(isr=(1, 2), partition_epoch=1, **FENCED)
    story.broker(3, fenced=True)
    story.later(20).removed()
    story.later(5).config("3")
    created = story.partition(isr=(1, 2), cause=Cause.CREATED, **PROVEN)
    story.seen[-1] = replace(created, topic_id="topic-2")
    beats(story, 30)

    state, rows = applied(story.seen)
    (incident,) = standing(rows)

    assert only(state).is_under_min_isr
    assert (incident["incident_class"], incident["closed_at"]) == ("broker_loss", None)
    assert "acks=all writers of topic orders fail" in incident["consequence"]


@pytest.mark.parametrize("source", [SourceKind.METADATA_LOG, SourceKind.POLL])
def test_an_incident_does_not_count_the_time_that_nobody_observed(source: SourceKind) -> None:
    story = Story("a", source)
    epochs = POLLED if source is SourceKind.POLL else {}
    start = [{"broker": broker} for broker in (1, 2, 3)]
    full_report(story, [epochs] * 2, start, SnapshotReason.START)
    story.config("2")
    story.later(5)
    for number in range(2):
        now = epochs or {"partition_epoch": 1}
        story.partition(number, isr=(1,), **now, cause=Cause.FENCED, evidence=Evidence.INFERRED)
    story.later(10).heartbeat()
    story.later(3 * 3_600)
    whole = epochs or {"partition_epoch": 5}
    full_report(story, [whole] * 2, start, SnapshotReason.HISTORY_LOST)
    beats(story, 5)

    state, rows = applied(story.seen)
    (incident,) = standing(rows)

    observed = state.clusters[CLUSTER].observed
    seconds = {observed.seconds_in(each, "under_min_isr_seconds") for each in state.partitions()}
    assert seconds == {10}
    assert (incident["under_min_isr_seconds"], incident["under_min_isr_partition_seconds"]) == (10, 20)


def test_a_topic_that_is_created_whole_or_where_nobody_is_down_is_no_trouble(story: Story) -> None:
    story.snapshot()
    story.later(20)
    created = story.partition(isr=(1, 2), cause=Cause.CREATED, **PROVEN)
    story.seen[-1] = replace(created, topic_id="topic-2")
    beats(story, 5)
    incidents = IncidentFold(IncidentGaps())
    assert incidents.fold(applied(story.seen)[1]) == []
