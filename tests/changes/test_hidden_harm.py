"""Harm that something ordered seems to explain, or that no observed step brought about: moves, leases, minima, gaps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streaming.changes.advice.restart_safety import restart_advice
from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.fold import fold
from streaming.changes.incidents.grouping import IncidentGaps
from streaming.changes.state import ReplicationState
from streaming.contracts.events import EventKind
from streaming.contracts.observations import ConfigOrigin, ControllerObserved, SnapshotBegin, SnapshotReason, SourceKind
from tests.changes.conftest import SECOND, START, Story, rows_from, state_after
from tests.changes.test_incidents import table_of

LOST = SnapshotReason.HISTORY_LOST
POLLED: dict[str, Any] = {"partition_epoch": None, "leader_epoch": None}
MOVE = {"cause": "reassignment", "evidence": "proven"}


def incidents(story: Story) -> list[dict[str, Any]]:
    rows = rows_from(story.seen)
    table = table_of([rows], IncidentGaps()).values()
    return sorted((row for row in table if row["merged_into"] is None), key=lambda row: str(row["incident_class"]))


def reported(story: Story) -> list[tuple[str, str, bool]]:
    return [(row["incident_class"], row["severity"], row["closed_at"] is None) for row in incidents(story)]


def voters(story: Story, caught_up: tuple[int, ...]) -> None:
    envelope = story.beside("quorum:a")
    story.add(ControllerObserved(**envelope, controller=1, controller_epoch=1, voters=(1, 2, 3), caught_up=caught_up))


def test_a_higher_replication_factor_that_refuses_writes_until_it_is_reached_is_no_benign_move() -> None:
    story = Story()
    story.config("2")
    story.snapshot([{"replicas": (1,), "isr": (1,)}])
    more = {"replicas": (1, 2, 3), "adding_replicas": (2, 3)}
    story.later(5).partition(**more, isr=(1,), partition_epoch=1, **MOVE)
    story.later(600).heartbeat()
    assert reported(story) == [("unsafe_reassignment", "critical", True)]
    assert incidents(story)[0]["consequence"] == "acks=all writers of topic orders fail"
    story.later(5).partition(**more, isr=(1, 2), partition_epoch=2, cause="expand", evidence="proven")
    story.later(5).partition(replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=3, **MOVE)
    story.later(600).heartbeat()
    assert reported(story) == [("unsafe_reassignment", "critical", False)]
    assert incidents(story)[0]["under_min_isr_seconds"] == 605.0


@pytest.mark.parametrize(("minimum", "severity"), [("2", "critical"), ("1", "warning")])
def test_replicas_that_are_added_do_not_hide_that_a_broker_is_lost(minimum: str, severity: str) -> None:
    """A move ends once every added replica is in sync, also while another target is down."""
    story = Story()
    story.config(minimum)
    story.snapshot([{}], brokers=(1, 2, 3, 4))
    move = {"replicas": (2, 4, 1, 3), "adding_replicas": (4,), "removing_replicas": (1, 3)}
    story.later(5).partition(**move, isr=(1, 2, 3), partition_epoch=1, **MOVE)
    story.later(5).partition(**move, isr=(1, 3), partition_epoch=2, cause="fenced", evidence="proven")
    story.broker(2, fenced=True)
    story.later(9).partition(**move, isr=(1, 3, 4), partition_epoch=3, cause="expand", evidence="proven")
    story.partition(replicas=(2, 4), isr=(4,), leader=4, leader_epoch=1, partition_epoch=4, **MOVE)
    story.later(600).heartbeat()
    assert reported(story) == [("broker_loss", severity, True), ("reassignment", "info", False)]


@pytest.mark.parametrize("is_announced", [True, False])
def test_an_unclean_election_that_nobody_observed_is_one(*, is_announced: bool) -> None:
    story = Story()
    story.config("1")
    two = {"replicas": (1, 2), "isr": (1,)}
    story.snapshot([two])
    story.later(5).heartbeat()
    if is_announced:
        story.add(story.lease(1))
    elected = {"isr": (2,), "leader": 2, "leader_epoch": 4, "partition_epoch": 6, "leader_recovering": True}
    story.later(600).snapshot([{**two, **elected}], reason=LOST)
    story.later(30).heartbeat()
    assert reported(story) == [("unclean_election", "critical", True)]


def test_work_on_one_broker_does_not_explain_what_a_leader_that_stalls_does_to_another() -> None:
    story = Story()
    story.config("1")
    assigned = [(1, 2), (1, 2), (1, 3)]
    story.snapshot([{"replicas": replicas, "isr": replicas} for replicas in assigned])
    story.later(5)
    story.add(story.lease(2))
    story.later(60)
    stall = {"cause": "leader_stall", "evidence": "ambiguous", "candidates": ("leader_stall", "lag")}
    for number, replicas in enumerate(assigned):
        story.partition(number, replicas=replicas, isr=(1,), partition_epoch=1, **stall)
    story.later(100).heartbeat()

    planned, other = incidents(story)
    assert (planned["incident_class"], [one["broker"] for one in planned["suspects"]]) == ("controlled_shutdown", [2])
    assert other["severity"] == "warning"
    assert 1 in [one["broker"] for one in other["suspects"]]


def test_a_broker_that_runs_and_lags_until_writes_are_refused_was_not_stopped() -> None:
    story = Story()
    story.config("2")
    story.snapshot([{"replicas": (1, 2), "isr": (1, 2)}])
    story.later(5)
    story.add(story.lease(2))
    story.later(60).partition(
        replicas=(1, 2), isr=(1,), partition_epoch=1, cause="lag", evidence="ambiguous", candidates=("lag",)
    )
    story.later(30).heartbeat()
    assert reported(story) == [("slow_follower", "critical", True)]


def test_an_announcement_does_not_reach_back_into_a_time_that_nobody_observed() -> None:
    story = Story()
    story.config("1")
    story.snapshot([{}])
    story.later(5).heartbeat()
    story.later(600)
    story.add(story.lease(1))
    gone = {"isr": (2, 3), "leader": 2, "leader_epoch": 1, "partition_epoch": 1}
    story.later(600).snapshot([gone], reason=LOST)
    story.broker(1, fenced=True)
    story.later(200).heartbeat()
    assert "info" not in {severity for _, severity, _ in reported(story)}


def test_an_incident_counts_no_time_that_nobody_observed_when_only_its_brokers_change() -> None:
    story = Story("admin:a", SourceKind.POLL)
    story.config("2", origin=ConfigOrigin.DESCRIBE)
    two = {**POLLED, "replicas": (1, 3)}
    story.snapshot([{**two, "isr": (1, 3)}])
    story.later(5).partition(**two, isr=(1,), cause="unknown", evidence="inferred")
    story.later(10).heartbeat()
    story.later(3_600).snapshot([{**two, "isr": (1,)}], brokers=(1, 2), reason=LOST)
    (incident,) = incidents(story)
    assert incident["under_min_isr_seconds"] == 10.0


def safe(story: Story) -> dict[int, bool | None]:
    state = state_after(story.seen)
    (cluster,) = state.clusters.values()
    advice = restart_advice(state.brokers.values(), cluster, SuspectTally(state.partitions()))
    return {broker: each.is_safe_to_stop for broker, each in advice.items()}


def test_a_quorum_that_was_reported_with_a_clock_ahead_does_not_stay_as_it_was() -> None:
    story = Story()
    story.config("1")
    story.snapshot([{"replicas": (1, 2), "isr": (1, 2)}])
    story.now = START + 1_200 * SECOND
    voters(story, (1, 2, 3))
    for half_minute in range(1, 29):
        story.now = START + half_minute * 30 * SECOND
        story.offset += 1
        story.heartbeat()
        voters(story, (1, 2))
    assert safe(story) == {1: False, 2: False, 3: True}


def test_what_was_reported_of_a_quorum_in_the_future_is_not_known_now() -> None:
    story = Story()
    story.config("1")
    story.snapshot([{"replicas": (1, 2), "isr": (1, 2)}])
    story.now = START + 1_200 * SECOND
    voters(story, (1, 2, 3))
    story.now = START + 60 * SECOND
    story.heartbeat()
    assert safe(story) == {1: None, 2: None, 3: None}


@pytest.mark.parametrize("ending", [{"fenced": True}, {"in_controlled_shutdown": True}])
def test_a_voter_that_is_known_to_be_down_as_a_broker_does_not_keep_the_quorum(ending: dict[str, bool]) -> None:
    story = Story()
    story.config("1")
    story.snapshot([{"replicas": (1, 2), "isr": (1, 2)}])
    voters(story, (1, 2, 3))
    story.later(170).broker(3, **ending)
    story.later(1).heartbeat()
    assert safe(story) == {1: False, 2: False, 3: None}


def test_an_election_that_a_full_report_shows_is_later_than_a_poll_whose_clock_was_ahead() -> None:
    log, poll = Story(), Story("admin:a", SourceKind.POLL)
    log.snapshot([{"leader_epoch": 7}])
    log.later(5).heartbeat()
    poll.now = log.now + 190 * SECOND
    poll.snapshot([POLLED], reason=LOST)
    poll.later(1).partition(**POLLED, leader=2, cause="unknown", evidence="inferred")
    state = state_after([*log.seen, *poll.seen])
    log.seen = []
    offline = {"leader": -1, "isr": (2,), "leader_epoch": 9, "partition_epoch": 2}
    log.now, log.offset = START + 95 * SECOND, log.offset + 9
    log.snapshot([offline], reason=SnapshotReason.PERIODIC)

    state.apply(fold(state, log.seen).touched)

    (partition,) = state.partitions()
    assert (partition.leader, partition.leader_epoch, partition.is_offline) == (-1, 9, True)


ONE = {"replicas": (1,), "isr": (1,)}
AFTER_GAP = {"leader_epoch": 3, "partition_epoch": 5}


def suspects(story: Story) -> list[int]:
    return [each["broker"] for incident in incidents(story) for each in incident["suspects"]]


def over_a_gap(story: Story, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Story:
    story.snapshot(before)
    story.later(5).heartbeat()
    story.later(600).snapshot(after, reason=LOST)
    story.later(60).heartbeat()
    return story


def test_a_minimum_that_is_raised_above_the_replicas_in_sync_opens_an_incident() -> None:
    story = Story()
    story.config("1")
    story.snapshot([{"isr": (1, 2)}])
    story.later(5).config("3")
    story.later(60).heartbeat()

    assert reported(story) == [("slow_follower", "critical", True)]
    assert suspects(story) == [3]
    assert incidents(story)[0]["consequence"] == "acks=all writers of topic orders fail"

    story.later(5).config("2")
    story.later(5).partition(partition_epoch=1, cause="expand", evidence="proven")
    story.later(120).heartbeat()
    assert reported(story) == [("slow_follower", "critical", False)]
    assert incidents(story)[0]["under_min_isr_seconds"] == 66.0 - 1.0


def test_a_minimum_that_is_raised_while_a_broker_is_lost_is_part_of_its_incident() -> None:
    story = Story()
    story.config("1")
    story.snapshot([{}])
    story.later(5).partition(isr=(1, 2), partition_epoch=1, cause="fenced", evidence="proven")
    story.broker(3, fenced=True)
    story.later(60).config("3")
    story.later(60).heartbeat()
    assert reported(story) == [("broker_loss", "critical", True)]


def test_a_minimum_that_is_raised_during_a_move_that_adds_replicas_makes_it_unsafe() -> None:
    story = Story()
    story.config("1")
    story.snapshot([ONE])
    more = {"replicas": (1, 2, 3), "adding_replicas": (2, 3), "isr": (1,)}
    story.later(5).partition(**more, partition_epoch=1, **MOVE)
    story.later(5).config("2")
    story.later(60).heartbeat()
    assert reported(story) == [("unsafe_reassignment", "critical", True)]


@pytest.mark.parametrize(
    ("state", "expected", "blamed"),
    [
        ({**ONE, "leader": -1}, "broker_loss", [1]),
        ({"leader": -1, "isr": (2,)}, "broker_loss", [2]),
        ({"leader": 2, "isr": (2,)}, "slow_follower", [1, 3]),
        ({"leader": 2, "isr": (2, 3, 1), "leader_recovering": True}, "unclean_election", []),
    ],
)
def test_a_partition_first_seen_in_harm_is_an_incident(state: dict[str, Any], expected: str, blamed: list[int]) -> None:
    story = Story()
    story.config("2")
    over_a_gap(story, [{}], [{}, {**AFTER_GAP, **state}])
    assert [incident[:2] for incident in reported(story)] == [(expected, "critical")]
    assert suspects(story) == blamed


def test_replicas_that_were_added_within_a_gap_and_lack_too_many_are_an_incident() -> None:
    story = Story()
    story.config("2")
    over_a_gap(story, [ONE], [{"isr": (1,), **AFTER_GAP, "leader_epoch": 0}])
    assert reported(story) == [("slow_follower", "critical", True)]
    assert suspects(story) == [2, 3]


def test_a_topic_that_is_created_while_a_broker_shuts_down_and_refuses_writes_is_part_of_its_stop() -> None:
    story = Story()
    story.config("2")
    story.snapshot([{}])
    stopped = {"cause": "controlled_shutdown", "evidence": "proven"}
    story.later(5).partition(isr=(2, 3), leader=2, leader_epoch=1, partition_epoch=1, **stopped)
    story.broker(1, in_controlled_shutdown=True)
    story.later(1).partition(1, replicas=(1, 2), isr=(2,), leader=2, cause="created", evidence="proven")
    story.later(3).broker(1, in_controlled_shutdown=True, fenced=True)
    story.later(60).heartbeat()
    assert reported(story) == [("unsafe_shutdown", "critical", True)]


def test_a_move_that_ends_with_the_loss_of_a_broker_that_stays_assigned_does_not_hide_it() -> None:
    story = Story()
    story.config("1")
    story.snapshot([{}], brokers=(1, 2, 3, 4))
    move = {"replicas": (1, 2, 3, 4), "adding_replicas": (4,), "removing_replicas": (3,)}
    story.later(5).partition(**move, isr=(1, 2, 3), partition_epoch=1, **MOVE)
    ended = {"replicas": (1, 2, 4), "isr": (1, 4), "partition_epoch": 2}
    either = {"cause": "reassignment", "evidence": "ambiguous", "candidates": ("reassignment", "fenced")}
    story.later(5).partition(**ended, **either)
    story.broker(2, fenced=True)
    story.later(300).heartbeat()
    assert reported(story) == [("broker_loss", "warning", True), ("reassignment", "info", False)]


def test_a_second_unclean_election_within_a_gap_is_counted() -> None:
    """A leader recovers until its ISR changes (KIP-704): who leads from outside of it was elected uncleanly again."""
    story = Story()
    story.config("1")
    recovering = {"leader_recovering": True, "isr": (2,), "leader": 2, "leader_epoch": 1, "partition_epoch": 1}
    again = {"leader_recovering": True, "isr": (3,), "leader": 3, "leader_epoch": 5, "partition_epoch": 6}
    over_a_gap(story, [recovering], [again])
    folded = fold(ReplicationState(), story.seen)
    (partition,) = folded.touched.partitions()
    assert partition.unclean_elections == 1
    assert EventKind.UNCLEAN_ELECTION in {each.event for change in folded.changes for each in change.events}
    assert [incident[:2] for incident in reported(story)] == [("unclean_election", "critical")]


def test_a_minimum_that_was_lowered_within_a_gap_counts_no_time_of_the_gap() -> None:
    """The partition's epoch proves that its ISR was the same all the time, but a configuration has no epoch."""
    story = Story()
    story.config("2")
    story.snapshot([{}])
    lag = {"cause": "lag", "evidence": "inferred"}
    story.later(5).partition(isr=(1,), partition_epoch=1, **lag)
    story.later(10).heartbeat()
    story.later(600)
    story.snapshot([{"isr": (1,), "partition_epoch": 1}], reason=LOST)
    begin = next(place for place in reversed(range(len(story.seen))) if isinstance(story.seen[place], SnapshotBegin))
    story.config("1")
    story.seen.insert(begin + 1, story.seen.pop())  # a full report begins with configurations
    story.seen[begin:] = [
        replace(each, sequence=story.seen[begin].sequence + place) for place, each in enumerate(story.seen[begin:])
    ]
    story.later(60).heartbeat()

    (partition,) = fold(ReplicationState(), story.seen).touched.partitions()
    assert (partition.is_under_min_isr, partition.is_under_replicated) == (False, True)
    assert partition.under_min_isr_seconds == 10.0
