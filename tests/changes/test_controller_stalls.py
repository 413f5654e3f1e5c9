"""A controller that stands still, and then takes its own silence for that of brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.fold import fold
from streaming.changes.state import ConfiguredTimes, ReplicationState
from streaming.contracts.events import Cause, EventKind, Evidence
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import ControllerObserved, Observation, SnapshotBegin, SnapshotEnd, SnapshotReason
from streaming.contracts.records import LeaderChange, RecordBatch
from streaming.sources.metadata_log.image import ClusterImage
from tests.changes.conftest import FENCED, Story, rows_from
from tests.changes.faults import Fault, observed, of, played
from tests.changes.test_incidents import SECOND, named, standing

RecordedLog = Callable[[str], list[RecordBatch]]
CONTROLLER = -100
LONG_AFTER = Micros(2_000_000_000 * SECOND)


def stall(at: float, seconds: float) -> list[Fault]:
    return [*of("pause", CONTROLLER, at=at), *of("resume", CONTROLLER, at=at + seconds)]


def seen_of(batches: Iterable[RecordBatch], *, restarts: bool = False) -> list[Observation]:
    """What a collector sees that reads all of it long after, and maybe is restarted before each batch."""
    image = ClusterImage(cluster_id=ClusterId("C"), cluster="test", source="metadata_log:test")
    seen = image.snapshot(snapshot_id="s", reason=SnapshotReason.START, collected_at=LONG_AFTER)
    for batch in batches:
        if restarts:
            image = ClusterImage.from_document(json.loads(json.dumps(image.to_document())))
        seen += image.apply(batch, LONG_AFTER)
    return seen


def before_two_processes(batches: Sequence[RecordBatch]) -> list[RecordBatch]:
    """The log until the controller is restarted."""
    begins = [place for place, batch in enumerate(batches) if isinstance(batch.records[0], LeaderChange)]
    return list(batches[: begins[1]])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_real_controller_that_stood_still_is_the_suspect_and_the_brokers_that_it_fenced_ran(
    recorded_log: RecordedLog, *, restarts: bool
) -> None:
    rows = rows_from(seen_of(before_two_processes(recorded_log("stalls_and_two_processes")), restarts=restarts))
    *stalls, loss = standing(rows)
    assert {row["incident_class"] for row in stalls} == {"controller_stall"}
    assert all(row["suspects"] == [{"broker": 101, "score": 1.0}] for row in stalls)
    assert "controller 101 stood still for 25.5 s, and then fenced broker 1, back with the next heartbeat: " in str(
        [row["summary"] for row in stalls]
    )
    assert (loss["incident_class"], [each["broker"] for each in loss["suspects"]]) == ("broker_loss", [4])


def test_the_causes_of_a_real_stall_name_it_and_stay_ambiguous(recorded_log: RecordedLog) -> None:
    changes = fold(ReplicationState(), seen_of(recorded_log("stalls_and_two_processes"))).changes
    by_stall = [change for change in changes if change.cause is Cause.CONTROLLER_STALL]
    assert {change.evidence for change in by_stall} == {Evidence.AMBIGUOUS}
    assert all(change.candidates[:2] == (Cause.CONTROLLER_STALL, Cause.FENCED) for change in by_stall)
    assert {broker for change in by_stall for broker in change.left_isr} == {1}
    stalled = [event.detail for change in changes for event in change.events if event.event == "controller_stalled"]
    assert stalled[0] == "controller 101 wrote nothing for 12.2 s"
    assert len(stalled) == 7


PLAYS: dict[str, tuple[list[Fault], list[tuple[str, list[int]]]]] = {
    "a stall longer than a session": (stall(20, 9), [("controller_stall", [100])]),
    "a stall that is shorter": (stall(20, 3), []),
    "a broker that pauses while the controller writes": (
        [*of("pause", 3, at=20), *of("resume", 3, at=32)],
        [("broker_loss", [3])],
    ),
    "a broker that pauses while the controller stalls for less than that": (
        [*of("pause", 3, at=20), *stall(21, 3), *of("resume", 3, at=40)],
        [("broker_loss", [3])],
    ),
    "a broker that is dead for long when the controller goes on": (
        [*of("kill", 3, at=14), *stall(16, 9)],
        [("broker_loss", [3])],
    ),
    "a broker that dies in the stall and stays away": (
        [*stall(20, 9), *of("kill", 4, at=22)],
        [("controller_stall", [100]), ("broker_loss", [4])],
    ),
    "the broker that is fenced died in the stall and stays away": (
        [*stall(20, 9), *of("kill", 2, at=22)],
        [("broker_loss", [2])],
    ),
    "the broker that is fenced died in the stall and is another process at once": (
        [*stall(20, 9), *of("kill", 2, at=22), *of("start", 2, at=29.5)],  # it rejoins before it is registered
        [("controller_stall", [100]), ("broker_loss", [2])],
    ),
    "another crash long after a stall": (
        [*stall(20, 9), *of("kill", 5, at=70)],
        [("controller_stall", [100]), ("broker_loss", [5])],
    ),
}


def test_a_broker_that_rejoined_an_isr_after_a_stall_ran_though_it_dies_soon() -> None:
    """One of its leaders died in the stall, and cannot add it to the ISR; the other one has."""
    faults = [*stall(20, 9), *of("kill", 1, at=24), *of("kill", 2, at=31)]
    topic = {"partitions": 3, "assignments": [[1, 2], [3, 2], [3, 1]], "min_insync_replicas": 1}
    found = named(played(faults, 110, brokers=(1, 2, 3), **topic))
    assert sorted(found) == [("broker_loss", [1, 2]), ("controller_stall", [100])]


@pytest.mark.parametrize("play", PLAYS)
def test_a_stall_of_the_controller_is_told_from_the_end_of_a_broker(play: str) -> None:
    faults, expected = PLAYS[play]
    assert named(played(faults, 110)) == expected


def test_a_clean_stop_that_did_harm_only_because_of_a_stall_is_to_blame_for_nothing() -> None:
    """Three replicas were in sync when it was asked for; the controller that resumed fenced another one first."""
    rows = played([*stall(16, 9), *of("stop", 1, at=18), *of("start", 1, at=40)], 140, brokers=(1, 2, 3))
    stop, by_stall = standing(rows)
    assert (stop["incident_class"], stop["suspects"]) == ("controlled_shutdown", [{"broker": 1, "score": 0.0}])
    assert stop["consequence"].endswith(", which planned work alone does not explain: other brokers were missing, too")
    assert (by_stall["incident_class"], by_stall["suspects"]) == ("controller_stall", [{"broker": 100, "score": 1.0}])


@pytest.mark.parametrize(("epoch", "kind"), [(5, "controller_stall"), (9, "broker_loss")])
def test_a_full_report_after_a_stall_shows_whether_the_fenced_broker_is_the_same_process(
    story: Story, epoch: int, kind: str
) -> None:
    """The collector missed the registration, so the report of another process says at once that it is up."""
    story.snapshot()
    story.later(20).tell(
        ControllerObserved, controller=100, controller_epoch=1, silent_since=Micros(story.now - 20 * SECOND)
    )
    story.partition(isr=(1, 3), partition_epoch=1, **FENCED)
    story.broker(2, fenced=True)
    story.later(3).tell(SnapshotBegin, snapshot_id="s", reason=SnapshotReason.START)
    story.broker(2, in_snapshot=True, broker_epoch=epoch)
    story.block([{"partition_epoch": 2}])
    listed: dict[str, Any] = {"topic_ids": ("topic-1",), "partition_counts": (1,), "brokers": (1, 2, 3)}
    story.tell(SnapshotEnd, snapshot_id="s", **listed)
    assert [row["incident_class"] for row in standing(rows_from(story.seen))] == [kind]


def test_an_unclean_election_that_a_stall_caused_blames_the_controller_alone() -> None:
    """Both followers had fallen behind; the leader ran, and was fenced for the silence of the controller."""
    slow: list[Fault] = [(10, "slow_disk", {"broker": broker, "records_per_second": 1}) for broker in (1, 3)]
    topic = {
        "partitions": 1, "assignments": [[2, 1, 3]], "min_insync_replicas": 1, "unclean_leader_election": True,
        "records_per_second": 20,
    }  # fmt: skip
    (row, *_) = standing(played([*slow, *stall(40, 9)], 140, brokers=(1, 2, 3), **topic))
    assert row["incident_class"] == "unclean_election"
    assert row["suspects"] == [{"broker": 100, "score": 1.0}]
    assert row["summary"].startswith(
        "leaders were elected uncleanly, because controller 100 stood still for 9 s, and then fenced broker 2, back "
        "with the next heartbeat (replication between brokers 1, 2 and 3 lagged, too): "
    )
    assert row["next_step"].endswith("its machine; find out which records are missing")

    lost = [slow[0], *of("kill", 3, at=20), *stall(40, 9)]
    (row,) = (
        each for each in standing(played(lost, 140, brokers=(1, 2, 3), **topic)) if each["suspects"][0]["broker"] > 9
    )
    assert row["summary"].startswith(
        "leaders were elected uncleanly, because controller 100 stood still for 9 s, and then fenced broker 2, back "
        "with the next heartbeat (broker 3 was lost, too): "
    )

    gone = [*slow, *stall(40, 9), *of("kill", 2, at=44)]
    (row, *_) = standing(played(gone, 140, brokers=(1, 2, 3), **topic))
    assert [each["broker"] for each in row["suspects"]] == [2], "it stays away"


def test_a_stall_is_reported_where_the_clock_of_the_controller_is_hours_ahead() -> None:
    def ahead(each: Observation) -> Observation:
        times = {"occurred_not_before", "occurred_not_after", "silent_since"}
        moved = {name: at + 7_200 * SECOND for name in times if (at := getattr(each, name, None)) is not None}
        return replace(each, **moved)  # type: ignore[arg-type]

    assert named(rows_from([*map(ahead, observed(stall(20, 9), 80))])) == [("controller_stall", [100])]


def test_of_three_controllers_another_one_takes_over_and_no_broker_is_fenced() -> None:
    assert named(played(stall(20, 12), 80, controllers=3)) == [("controller_failover", [])]


def test_until_a_fenced_broker_is_back_nobody_says_that_it_runs_and_after_a_session_it_is_lost() -> None:
    rows = played(stall(20, 9), 80)
    until_fenced = rows[: 1 + next(place for place, row in enumerate(rows) if EventKind.FENCED in row.events)]
    (row,) = standing(until_fenced)
    assert row["incident_class"] == "controller_stall"
    assert row["summary"].startswith("controller 100 stood still for 9")
    assert ", which may run: " in row["summary"]
    assert row["next_step"].endswith("; restart no broker")
    source = next(row for row in rows if row.subject == "source")
    fenced_at = until_fenced[-1].time
    for seconds, kind in ((5, "controller_stall"), (7, "broker_loss")):
        later = source._replace(time=fenced_at + seconds * SECOND, events=(), event_ids=())
        (row,) = standing([*until_fenced, later])
        assert row["incident_class"] == kind
    assert "(controller 100 stood still for 9" in row["summary"]


def test_a_broker_that_is_back_from_a_stall_is_to_blame_for_nothing_while_it_catches_up() -> None:
    state, tally = ReplicationState(), SuspectTally()
    for each in observed(stall(20, 9), 80):
        touched = fold(state, [each]).touched
        tally.apply(state, touched)
        state.apply(touched)
        up = [broker for broker in state.brokers.values() if not broker.is_fenced]
        scores = tally.suspect_scores(ClusterId("c"), state.brokers.values())
        assert not any(scores[broker.broker] for broker in up)


def test_a_session_counts_against_its_broker_if_the_controller_listened_for_long_enough() -> None:
    times = ConfiguredTimes()  # a session of 9 s

    def is_of_stall(since: float, until: float, fenced: float) -> bool:
        return times.is_of_stall(*(round(at * SECOND) for at in (since, until, fenced)))

    assert is_of_stall(10, 22, 22.0)
    assert is_of_stall(10, 17.9, 17.9)  # measured: a stall of 7.9 s fences a broker that had reported 1.1 s before
    assert is_of_stall(10, 22, 26.5)
    assert not is_of_stall(10, 22, 26.6)
    assert is_of_stall(10, 18.5, 20.2)
    assert not is_of_stall(10, 18.5, 20.8)
    assert not is_of_stall(10, 16, 16)
    assert not is_of_stall(0, 0, 22)


def test_a_stall_that_begins_soon_after_another_one_is_that_one_longer() -> None:
    seen = observed(stall(20, 9), 60)
    (first,) = (each for each in seen if isinstance(each, ControllerObserved) and each.silent_since is not None)
    at = first.occurred_not_after

    def again(begin: float, end: float) -> tuple[int | None, int | None]:
        times = {"occurred_not_before": at + round(end * SECOND), "occurred_not_after": at + round(end * SECOND)}
        later = replace(first, silent_since=Micros(at + round(begin * SECOND)), sequence=0, **times)  # type: ignore[arg-type]
        state = ReplicationState()
        state.apply(fold(state, [*seen, later]).touched)
        (cluster,) = state.clusters.values()
        return cluster.controller_silent_since, cluster.controller_silent_until

    assert again(1, 4) == (first.silent_since, at + 4 * SECOND)
    assert again(2, 4) == (at + 2 * SECOND, at + 4 * SECOND)
    assert again(-9, 0) == (first.silent_since, at)  # another collector of the same log
