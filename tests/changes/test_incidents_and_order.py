"""Incidents follow from what happened: not from how it is cut into batches, nor from which source is read first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streaming.changes.fold import fold
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import CauseRevised, ConfigOrigin, MaintenanceObserved, Observation, SourceKind
from streaming.delta.changes.log import changes_to_arrow
from streaming.delta.incidents.rows import incident_row, rows_of
from tests.changes.conftest import EXPAND, FENCED, PROVEN, SECOND, STOPPED, Story


def incidents_of(*batches: Sequence[Observation]) -> list[dict[str, Any]]:
    """What the table of incidents holds after these batches."""
    state, incidents, table = ReplicationState(), IncidentFold(IncidentGaps()), dict[str, dict[str, Any]]()
    for version, batch in enumerate(batches, start=1):
        folded = fold(state, batch)
        state.apply(folded.touched)
        for incident in incidents.fold(rows_of(changes_to_arrow(folded.changes), version)):
            row = incident_row(incident, version, may_go_on=incidents.remembered(incident))
            table[incident.incident_id] = row
    return [row for row in table.values() if row["merged_into"] is None]


def new_topic(story: Story, **fields: Any) -> None:
    story.partition(topic_id="topic-2", topic="new", cause=Cause.CREATED, **PROVEN, **fields)


def a_clean_restart() -> tuple[Story, list[Observation]]:
    """Broker 3 stops cleanly; then the story goes on with its return after a minute."""
    story = Story()
    story.snapshot([{}])
    story.config("1")
    story.later(10).broker(3, in_controlled_shutdown=True)
    story.partition(isr=(1, 2), partition_epoch=1, **STOPPED)
    story.broker(3, in_controlled_shutdown=True, fenced=True)
    stop, story.seen = story.seen, []
    story.later(60).broker(3, broker_epoch=99, fenced=True)
    story.later(5).broker(3, broker_epoch=99)
    story.later(1).partition(partition_epoch=2, **EXPAND)
    for _ in range(20):
        story.later(60).heartbeat()
    return story, stop


@pytest.mark.parametrize("origin", list(ConfigOrigin))
@pytest.mark.parametrize("is_known_before", [True, False])
def test_a_minimum_known_during_an_incident_is_part_of_it(origin: ConfigOrigin, *, is_known_before: bool) -> None:
    story = Story()
    story.snapshot([{}])
    story.config("1")
    story.later(10).partition(isr=(1, 2), partition_epoch=1, **FENCED)
    story.broker(3, fenced=True)
    if is_known_before:
        story.later(5).config("2", origin, topic="new")
    story.later(20)
    new_topic(story, replicas=(1, 3), isr=(1,))
    if not is_known_before:
        story.later(5).config("2", origin, topic="new")
    story.later(60).heartbeat()

    (incident,) = incidents_of(story.seen)
    assert (incident["under_min_isr_now"], incident["severity"]) == (1, "critical")
    assert incident["consequence"] == "acks=all writers of topic new fail"


@pytest.mark.parametrize("origin", list(ConfigOrigin))
@pytest.mark.parametrize("is_known_before", [True, False])
def test_a_first_minimum_does_not_count_a_partition_again(origin: ConfigOrigin, *, is_known_before: bool) -> None:
    story = Story()
    if is_known_before:
        story.config("1", origin)
    story.snapshot([{}, {"leader": 2}])
    if not is_known_before:
        story.config("1", origin)
    story.later(10).partition(1, partition_epoch=1, leader_epoch=1, cause=Cause.PREFERRED_ELECTION, **PROVEN)
    lag = {"isr": (1, 2), "cause": Cause.LAG, **PROVEN}
    story.later(1_000).partition(partition_epoch=1, **lag)
    story.partition(1, leader_epoch=1, partition_epoch=2, **lag)
    story.later(20).heartbeat()
    (incident,) = incidents_of(story.seen)
    assert incident["incident_class"] == "slow_follower", "nobody else leads anything: no link is shown to be cut"


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_a_first_state_of_a_partition_moves_no_time_before_the_rows_in_front_of_it(*, is_one_batch: bool) -> None:
    story, stop = a_clean_restart()
    story.later(5)
    new_topic(story)
    story.later(5).config("1", ConfigOrigin.DESCRIBE, topic="new")
    story.later(5).snapshot([{"partition_epoch": 2}, {}])
    rest = [story.seen] if is_one_batch else [[observed] for observed in story.seen]
    (incident,) = incidents_of(stop, *rest)
    assert incident["incident_class"] == "controlled_shutdown"


@pytest.mark.parametrize("is_ahead", [True, False])
@pytest.mark.parametrize("source", ["maintenance:x", "admin:x", "poll:x"])
def test_a_source_that_is_read_ahead_of_the_log_moves_no_time(source: str, *, is_ahead: bool) -> None:
    story, stop = a_clean_restart()
    other = Story(source, SourceKind.POLL if source == "poll:x" else SourceKind.NONE)
    other.now = story.now - 300 * SECOND
    if source == "maintenance:x":
        lease = {"broker": BrokerId(1), "lease": "l", "lease_until": Micros(other.now + 60 * SECOND), "why": "w"}
        other.add(MaintenanceObserved(**other.envelope(), **lease))
    elif source == "admin:x":
        other.config("2", ConfigOrigin.DESCRIBE)
    else:
        other.heartbeat()
    batches = [[*stop, *other.seen], story.seen] if is_ahead else [[*stop, *story.seen, *other.seen]]

    (incident,) = incidents_of(*batches)
    assert incident["incident_class"] == "controlled_shutdown"
    assert incident["cluster_id"] == ClusterId("cluster-1")


def stopped(story: Story, broker: int, **partition: Any) -> None:
    story.later(10).broker(broker, in_controlled_shutdown=True)
    story.partition(**partition, **STOPPED)
    story.broker(broker, in_controlled_shutdown=True, fenced=True)


def test_who_is_down_is_to_be_started_though_another_one_did_the_harm() -> None:
    story = Story()
    first, second = {"replicas": (1, 3, 4)}, {"replicas": (1, 2)}
    story.snapshot([{**first, "isr": (1, 3, 4)}, {**second, "isr": (1, 2)}], brokers=(1, 2, 3, 4))
    story.config("2")
    stopped(story, 3, **first, isr=(1, 4), partition_epoch=1)
    stopped(story, 2, number=1, **second, isr=(1,), partition_epoch=1)
    story.later(10).broker(2, broker_epoch=99)
    story.partition(1, **second, isr=(1, 2), partition_epoch=2, **EXPAND)
    story.later(5).heartbeat()
    (incident,) = incidents_of(story.seen)
    assert (incident["incident_class"], [each["broker"] for each in incident["suspects"]]) == ("unsafe_shutdown", [2])
    assert incident["next_step"] == "start broker 3 again, and stop only what is safe to stop"


@pytest.mark.parametrize("is_proven_late", [False, True])
def test_stops_that_did_harm_are_one_incident_also_if_they_are_proven_afterwards(*, is_proven_late: bool) -> None:
    story = Story()
    story.snapshot([{}])
    story.config("3")
    for turn, broker in enumerate((3, 2)):
        isr, epoch = tuple(each for each in (1, 2, 3) if each != broker), 2 * turn + 1
        if is_proven_late:
            story.later(10).broker(broker, fenced=True)
            story.partition(isr=isr, partition_epoch=epoch, **FENCED)
        else:
            stopped(story, broker, isr=isr, partition_epoch=epoch)
        removed_at = story.offset - (not is_proven_late)
        story.later(10)
        if is_proven_late:
            of = {"topic_id": "topic-1", "topic": "orders", "partition": 0, "revised_offset": removed_at}
            proof = {"cause": Cause.CONTROLLED_SHUTDOWN, **PROVEN, "broker": broker, "metadata_index": 0}
            story.add(CauseRevised(**story.envelope(), metadata_offset=story.offset, **of, **proof))
        story.later(1).broker(broker, broker_epoch=50 + broker)
        story.later(1).partition(partition_epoch=epoch + 1, **EXPAND)

    (incident,) = incidents_of(story.seen)
    assert (incident["incident_class"], [each["broker"] for each in incident["suspects"]]) == (
        "unsafe_shutdown",
        [2, 3],
    )
    assert incident["isr_shrinks"] == 2
