"""Topics whose ISR means nothing (KIP-1150): they are in no count of unhealthy ones, and are counted themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from streaming.changes.advice.restart_safety import restart_advice
from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.fold import fold
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.changes.state import Change, ReplicationState
from streaming.contracts.events import Cause, EventKind, Evidence
from streaming.contracts.health import states_of
from streaming.contracts.identifiers import NO_LEADER, ClusterId
from streaming.contracts.observations import DISKLESS, ConfigOrigin, Observation
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE
from streaming.delta.changes.log import changes_to_arrow, in_commit
from streaming.delta.incidents.rows import rows_of
from streaming.delta.log.definitions import arrow_schema, rows_to_arrow
from streaming.delta.projections.of_clusters import broker_rows, cluster_rows
from streaming.delta.state import apply_changes
from tests.changes.conftest import FENCED, LAG, Story, only, state_after

CLUSTER = ClusterId("cluster-1")
ALONE: dict[str, Any] = {"replicas": (1,), "isr": (1,), "leader": 1}
DEAD: dict[str, Any] = {**ALONE, "leader": NO_LEADER}


def played(told: Iterable[Observation]) -> tuple[ReplicationState, list[Change]]:
    """Fold one by one, and read every state back from the rows of its changes."""
    state, changes = ReplicationState(), list[Change]()
    for observed in told:
        folded = fold(state, [observed])
        changes += folded.changes
        rebuilt = ReplicationState()
        apply_changes(rebuilt, changes_to_arrow(changes))
        state.apply(folded.touched)
        assert rebuilt.configs == state.configs
        assert list(rebuilt.partitions()) == list(state.partitions())
    return state, changes


def events(changes: Iterable[Change]) -> list[EventKind]:
    return [event.event for change in changes for event in change.events]


def counts(state: ReplicationState) -> dict[str, Any]:
    (row,) = cluster_rows(state, SuspectTally(state.partitions()), 1)
    return row


@pytest.mark.parametrize("origin", ConfigOrigin)
def test_a_topic_configured_before_its_partitions_is_diskless_at_once(story: Story, origin: ConfigOrigin) -> None:
    story.snapshot([])
    story.later().config("true", origin, key=DISKLESS)
    story.partition(isr=(1,))
    state, changes = played(story.seen)
    partition = only(state)
    assert partition.is_diskless
    assert states_of(partition) == ("partitions", "diskless")
    assert events(changes) == [EventKind.TOPIC_CREATED]
    row = counts(state)
    assert (row["partitions"], row["topics"], row["diskless_partitions"]) == (1, 1, 1)
    assert (row["under_replicated_partitions"], row["unknown_min_isr_partitions"]) == (0, 0)


@pytest.mark.parametrize("minimum", [None, "2"])
def test_a_topic_becomes_diskless_when_it_is_configured_and_stops_being_so(story: Story, minimum: str | None) -> None:
    """Whether its minimum is known or not: an episode that began with an event ends with one."""
    if minimum is not None:
        story.config(minimum)
    story.snapshot([{}])
    story.later(10).partition(isr=(1,), partition_epoch=1, **LAG)
    story.later(20).config("true", key=DISKLESS)
    story.later(40).config(None, key=DISKLESS)
    story.later(5).heartbeat()

    state, changes = played(story.seen)
    partition, observed = only(state), state.clusters[CLUSTER].observed

    assert not partition.is_diskless
    assert observed.seconds_in(partition, "under_replicated_seconds") == 20 + 5
    assert observed.seconds_in(partition, "under_min_isr_seconds") == (0 if minimum is None else 20 + 5)
    began, ended = EventKind.UNDER_REPLICATED_BEGAN, EventKind.UNDER_REPLICATED_ENDED
    assert [each for each in events(changes) if each in {began, ended}] == [began, ended, began]


def test_a_topic_of_the_same_name_is_not_diskless_because_its_predecessor_was(story: Story) -> None:
    story.config("true", key=DISKLESS)
    story.snapshot([{"isr": (1,)}])
    story.later().removed()
    story.config(None, key=DISKLESS)
    gone, _ = played(story.seen)
    assert [(each.is_deleted, each.is_diskless) for each in gone.partitions()] == [(True, False)]
    assert counts(gone)["diskless_partitions"] == 0
    story.later().partition(topic_id="topic-2", isr=(1,))
    state, _ = played(story.seen)
    assert (only(state).is_diskless, only(state).is_under_replicated) == (False, True)


def test_a_value_of_the_log_outranks_the_answer_of_a_broker_and_its_removal_ends_both(story: Story) -> None:
    story.snapshot([{}])
    story.config("true", ConfigOrigin.DESCRIBE, key=DISKLESS)
    assert only(played(story.seen)[0]).is_diskless
    story.later().config("false", key=DISKLESS)
    assert not only(played(story.seen)[0]).is_diskless
    story.later().config("true", key=DISKLESS)
    story.later().config(None, key=DISKLESS)
    assert not only(played(story.seen)[0]).is_diskless


@pytest.mark.parametrize(
    ("value", "is_diskless"), [("true", True), ("TRUE", True), ("false", False), ("1", False), ("", False)]
)
def test_the_flag_is_read_as_kafka_reads_it(story: Story, value: str, is_diskless: bool) -> None:  # noqa: FBT001 - a parameter
    story.config(value, key=DISKLESS)
    story.config("true", topic="", key=DISKLESS)  # no topic is diskless by a default of the cluster
    story.snapshot([{}])
    assert only(played(story.seen)[0]).is_diskless is is_diskless


def test_what_its_isr_and_its_leader_do_is_no_event_and_nobody_is_to_blame(story: Story) -> None:
    story.config("2")
    story.config("true", key=DISKLESS)
    story.snapshot([{}])
    story.later().partition(isr=(1,), partition_epoch=1, **LAG)
    story.later().partition(isr=(1,), leader=NO_LEADER, partition_epoch=2, leader_epoch=1, **FENCED)
    story.later().partition(
        isr=(3,), leader=3, partition_epoch=3, leader_epoch=2, leader_recovering=True, cause=Cause.UNCLEAN_ELECTION,
        evidence=Evidence.PROVEN,
    )  # fmt: skip

    state, changes = played(story.seen)
    partition, tally = only(state), SuspectTally(state.partitions())

    assert (partition.isr, partition.leader) == ((3,), 3)
    assert events(changes) == []
    assert not any(
        (partition.isr_shrinks, partition.isr_expands, partition.leader_changes, partition.unclean_elections)
    )
    assert [change.left_isr for change in changes if change.left_isr] == []
    assert tally.of_cluster(CLUSTER, "blamed") == 0


def test_it_makes_no_broker_unsafe_to_stop_and_none_wait(story: Story) -> None:
    story.config("1")
    story.config("true", topic="cold", key=DISKLESS)
    story.broker(1)
    story.broker(2)
    story.snapshot([{"replicas": (1, 2), "isr": (1, 2)}])
    story.later().partition(0, topic_id="topic-2", topic="cold", **DEAD)
    story.later().partition(1, topic_id="topic-2", topic="cold", replicas=(2, 1), isr=(2,), leader=2)

    state, _ = played(story.seen)
    brokers = [each for each in state.brokers.values() if each.broker in {1, 2}]
    advice = restart_advice(brokers, state.clusters[CLUSTER], SuspectTally(state.partitions()))

    assert {broker: (each.is_safe_to_stop, each.would_go_offline) for broker, each in advice.items()} == {
        1: (True, 0),
        2: (True, 0),
    }
    assert sorted(each.restart_order or 0 for each in advice.values()) == [1, 2]


def incidents(changes: list[Change]) -> list[tuple[str, int]]:
    fold_of_incidents = IncidentFold(IncidentGaps())
    found = fold_of_incidents.fold(rows_of(in_commit(changes_to_arrow(changes), 0, 0), 0))
    return [(each.base, sum(map(len, each.touched.values()))) for each in found]


def test_a_lost_broker_is_an_incident_of_the_other_topics_only(story: Story) -> None:
    story.config("true", topic="cold", key=DISKLESS)
    story.broker(1)
    story.snapshot([{}])
    story.later().partition(0, topic_id="topic-2", topic="cold", **ALONE)
    story.later().broker(1, fenced=True)
    story.partition(0, topic_id="topic-2", topic="cold", **DEAD, partition_epoch=1, leader_epoch=1, **FENCED)
    assert incidents(played(story.seen)[1]) == []
    story.partition(isr=(2, 3), leader=2, partition_epoch=1, leader_epoch=1, **FENCED)
    assert incidents(played(story.seen)[1]) == [("loss", 1)]


def test_an_incident_ends_when_its_last_degraded_topic_becomes_diskless(story: Story) -> None:
    story.snapshot([{}])
    story.later().partition(isr=(1, 2), partition_epoch=1, **LAG)
    story.later(30).config("true", key=DISKLESS)
    story.later(600).partition(isr=(1,), partition_epoch=2, **LAG)
    story.later(600).heartbeat()
    fold_of_incidents = IncidentFold(IncidentGaps())
    (incident,) = fold_of_incidents.fold(rows_of(in_commit(changes_to_arrow(played(story.seen)[1]), 0, 0), 0))
    assert incident.held == {}
    assert incident.closed_at is not None
    assert fold_of_incidents.contexts[CLUSTER].in_sync.total() == 0, "nobody follows in a diskless partition"


def test_a_poll_is_told_by_the_brokers_which_topics_are_diskless(poll: Story) -> None:
    poll.snapshot([{"isr": (1,), "partition_epoch": None}])
    poll.later(30).config("true", ConfigOrigin.DESCRIBE, key=DISKLESS)
    poll.later(30).partition(isr=(2,), leader=2, partition_epoch=None)
    poll.later(30).partition(isr=(3,), leader=3, partition_epoch=None)
    state, changes = played(poll.seen)
    assert (only(state).is_diskless, only(state).leader_changes) == (True, 0)
    assert events(changes) == [EventKind.UNDER_REPLICATED_ENDED]


def test_counts_of_brokers_leave_it_out_and_rows_of_the_tables_say_which_topics_they_are(story: Story) -> None:
    story.config("true", key=DISKLESS)
    story.broker(1)
    story.snapshot([{}])
    state, _ = played(story.seen)
    tally = SuspectTally(state.partitions())

    (broker,) = (row for row in broker_rows(state, tally, {}, 1) if row["broker"] == 1)  # type: ignore[arg-type]
    row = rows_to_arrow([counts(state)], arrow_schema(CLUSTER_STATE_TABLE)).to_pylist()[0]

    assert (broker["led_partitions"], broker["hosted_partitions"], broker["in_sync_partitions"]) == (0, 0, 0)
    assert [(each["topic"], each["origin"], each["is_diskless"]) for each in row["diskless_topics"]] == [
        ("orders", "log", True)
    ]
    assert row["under_min_isr_partitions"] == 0, "of no partition the minimum is unknown"
    rows_to_arrow(broker_rows(state, tally, {}, 1), arrow_schema(BROKER_STATE_TABLE))  # type: ignore[arg-type]


def test_the_flag_does_not_outlive_the_tombstones_of_its_topic(story: Story) -> None:
    story.config("true", key=DISKLESS)
    story.snapshot([{}])
    story.later().removed()
    story.later(3 * 86_400).heartbeat()
    state, _ = played(story.seen)
    cluster = state.clusters[CLUSTER]
    state.put_cluster(cluster._replace(tombstones_until=cluster.watermark))
    assert state.configs == {}


def test_changes_of_other_topics_do_not_write_the_diskless_ones_again(story: Story) -> None:
    for number in range(50):
        story.config("true", topic=f"cold-{number}", key=DISKLESS)
    story.snapshot([{}])
    told = len(story.seen)
    state = state_after(story.seen)
    for epoch in range(1, 20):
        story.later().partition(isr=(1, 2) if epoch % 2 else (1, 2, 3), partition_epoch=epoch, **LAG)
    story.later().controller(7, 2)
    rows = changes_to_arrow(fold(state, story.seen[told:]).changes).to_pylist()
    written = [row["cluster_after"]["diskless_topics"] for row in rows if row["cluster_after"] is not None]
    assert written
    assert not any(written), "a change carries only what it configures"


def test_the_configuration_counts_from_its_place_within_a_batch(story: Story) -> None:
    story.config("2")
    story.snapshot([{}])
    story.later().config("true", key=DISKLESS)
    story.partition(1, isr=(1,))
    story.later().config("false", key=DISKLESS)
    story.later().partition(1, isr=(2,), leader=2, partition_epoch=1, leader_epoch=1, **LAG)
    state, batch = ReplicationState(), ReplicationState()
    for observed in story.seen:
        state.apply(fold(state, [observed]).touched)
    batch.apply(fold(batch, story.seen).touched)
    assert list(batch.partitions()) == list(state.partitions())
    assert [(each.is_diskless, each.isr_shrinks) for each in batch.partitions()] == [(False, 0), (False, 1)]
