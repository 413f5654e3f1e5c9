"""Partitions that refuse writes, or have no leader, though no observed step took a broker out of their ISR."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import EventKind
from streaming.contracts.observations import SnapshotBegin
from tests.changes.conftest import Story
from tests.changes.test_hidden_harm import LOST, MOVE, incidents, reported

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
def test_a_partition_first_seen_in_harm_is_in_an_incident(
    state: dict[str, Any], expected: str, blamed: list[int]
) -> None:
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
