from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from streaming.changes.fold import fold
from streaming.changes.state import Change, ConfiguredTimes, ReplicationState
from streaming.contracts.events import Cause, EventKind, Evidence, Subject
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import ConfigOrigin, Observation, SnapshotReason, SourceKind
from streaming.contracts.state import ClusterState, ConfigKey, SourceState
from streaming.delta.changes.log import changes_to_arrow
from streaming.errors import InvalidObservation
from tests.changes.conftest import EXPAND, LAG, Story, folded, only, state_after


def run(told: Iterable[Observation], state: ReplicationState | None = None) -> tuple[ReplicationState, list[Change]]:
    state, changes = folded(told, state)
    return state, [each for change in changes for each in change.singly() if each.subject is not Subject.SOURCE]


def steps(changes: list[Change]) -> list[Change]:
    return [change for change in changes if change.subject is Subject.PARTITION and not change.is_baseline]


def kinds(change: Change) -> list[EventKind]:
    return [event.event for event in change.events]


def test_what_is_not_news_is_counted_as_duplicate_unless_a_full_report_repeats_it(story: Story) -> None:
    story.snapshot([{}, {}])
    story.later().partition(0, isr=(1, 2), partition_epoch=1, **LAG)
    again = replace(story.seen[-1], sequence=story.seen[-1].sequence + 1)
    repeated = replace(again, sequence=again.sequence + 1, in_snapshot=True)
    state, _ = run([*story.seen, again, repeated])
    assert state.sources["cluster-1", story.source].duplicates == 1


def test_the_event_of_a_broker_is_identified_by_its_record_and_in_a_poll_by_its_moment(story: Story) -> None:
    story.snapshot()
    story.later().broker(3, fenced=True)
    fenced = story.seen[-1]
    polled = replace(fenced, sequence=fenced.sequence + 1, metadata_offset=None, fenced=False)
    _, changes = run([*story.seen, polled])
    found = [event.event_id for change in changes for event in change.events if change.subject is Subject.BROKER]
    assert found == [
        f"cluster-1/broker/3/{fenced.metadata_offset}/fenced",
        f"cluster-1/broker/3/{polled.occurred_not_after}/unfenced",
    ]


def test_the_first_sight_of_a_cluster_writes_baseline_rows_without_events(story: Story) -> None:
    story.snapshot([{}, {"isr": (1, 2)}])
    state, changes = run(story.seen)
    assert [change.is_baseline for change in changes if change.subject is not Subject.CLUSTER] == [True] * 5
    assert [event for change in changes for event in change.events] == []
    assert [partition.is_under_replicated for partition in state.partitions()] == [False, True]


def test_a_shrink_below_the_minimum_tells_everything_that_began(story: Story) -> None:
    story.config("2")
    story.snapshot()
    story.later().partition(isr=(1,), partition_epoch=1, **LAG)
    state, changes = run(story.seen)
    (change,) = steps(changes)
    assert kinds(change) == [EventKind.ISR_SHRINK, EventKind.UNDER_REPLICATED_BEGAN, EventKind.UNDER_MIN_ISR_BEGAN]
    assert change.left_isr == (2, 3)
    assert (change.cause, change.evidence) == (Cause.LAG, Evidence.PROVEN)
    assert next(state.partitions()).isr_shrinks == 1


def test_durations_are_told_from_the_times_of_the_log_alone(story: Story) -> None:
    story.config("3")
    story.snapshot()
    story.later(10).partition(isr=(1, 2), partition_epoch=1, **LAG)
    story.later(2.5).partition(isr=(1, 2, 3), partition_epoch=2, **EXPAND)
    state, _ = run(story.seen)
    partition = next(state.partitions())
    assert (partition.under_replicated_seconds, partition.under_min_isr_seconds) == (2.5, 2.5)
    assert partition.under_replicated_since is None


@pytest.mark.parametrize(("others", "named"), [((1, 2), 3), ((1,), None)])
def test_the_event_of_an_isr_change_names_its_broker_if_it_is_one(
    story: Story, others: tuple[int, ...], named: int | None
) -> None:
    story.snapshot()
    story.later().partition(isr=others, partition_epoch=1, **LAG)
    story.later().partition(partition_epoch=2, **EXPAND)
    events = [event for change in run(story.seen)[1] for event in change.events]
    assert [(event.event, event.event_broker) for event in events if event.event.startswith("isr_")] == [
        (EventKind.ISR_SHRINK, named),
        (EventKind.ISR_EXPAND, named),
    ]


def test_an_epoch_jump_after_lost_history_counts_what_was_missed_and_invents_nothing(story: Story) -> None:
    story.snapshot()
    story.later(1).partition(isr=(1, 2), partition_epoch=1, **LAG)
    story.later(100)
    story.snapshot([{"isr": (1, 2, 3), "partition_epoch": 6}])
    state, changes = run(story.seen)
    partition, change = next(state.partitions()), steps(changes)[-1]
    assert 4 == change.missed == partition.missed_changes
    assert (change.cause, change.evidence) == (Cause.UNKNOWN, Evidence.INFERRED)
    assert EventKind.CHANGES_MISSED in kinds(change)
    assert (partition.under_replicated_seconds, partition.unknown_seconds) == (0.0, 100.0)


def test_a_deleted_topic_leaves_healthy_tombstones_and_late_news_of_it_is_dropped(story: Story) -> None:
    story.snapshot()
    story.later().partition(isr=(1,), partition_epoch=1, **LAG)
    late = story.seen[-1]
    story.later().removed()
    state, changes = run(story.seen)
    _, after = run(_renumbered([late], "metadata_log:b"), state)
    partition = next(state.partitions())
    assert kinds(steps(changes)[-1]) == [EventKind.TOPIC_DELETED]
    assert after == []
    assert (partition.is_deleted, partition.is_under_replicated, partition.is_offline) == (True, False, False)


def test_a_snapshot_that_does_not_name_a_partition_removes_it(story: Story) -> None:
    story.snapshot([{}, {}])
    story.later()
    story.snapshot([{}])
    state, changes = run(story.seen)
    assert [partition.is_deleted for partition in state.partitions()] == [False, True]
    assert [change.evidence for change in steps(changes)] == [Evidence.INFERRED]


@pytest.mark.parametrize(("of_log", "minimum"), [(None, 2), ("1", 1)])
def test_a_broker_answers_the_minimum_unless_the_log_has_one(story: Story, of_log: str | None, minimum: int) -> None:
    if of_log is not None:
        story.config(of_log)
    story.snapshot([{"isr": (1,)}])
    assert only(state_after(story.seen)).is_under_min_isr is (None if of_log is None else False)
    story.config("2", ConfigOrigin.DESCRIBE)
    assert only(state_after(story.seen)).min_isr_configured == minimum


def test_a_poller_corroborates_while_the_log_is_heard_and_takes_over_later(story: Story, poll: Story) -> None:
    story.snapshot()
    poll.now = story.now
    poll.later(30)
    poll.snapshot([{"isr": (1, 2), "partition_epoch": None}])
    state, changes = run([*story.seen, *poll.seen])
    assert steps(changes) == []

    poll.seen.clear()
    poll.later(31).heartbeat()
    state, changes = run(poll.seen, state)
    assert state.clusters["cluster-1"].primary_source is SourceKind.METADATA_LOG, "a heartbeat tells no state"

    poll.seen.clear()
    poll.later()
    poll.snapshot([{"isr": (1, 2), "partition_epoch": None}])
    state, changes = run(poll.seen, state)

    assert [change.cause for change in steps(changes)] == [Cause.UNKNOWN]
    assert kinds(changes[0]) == [EventKind.PRIMARY_SOURCE_CHANGE]
    assert SourceKind.POLL is state.clusters["cluster-1"].primary_source


def test_how_far_the_primary_source_is_may_be_read_before_the_row_that_says_which_one_it_is() -> None:
    owner = {"cluster_id": ClusterId("cluster-1"), "cluster": "orders-eu"}
    state = ReplicationState()
    state.put_source(SourceState(**owner, source="b", source_kind=SourceKind.POLL, observed_until=Micros(9)))
    state.put_cluster(ClusterState(**owner, primary_source=SourceKind.POLL))
    assert state.clusters[ClusterId("cluster-1")].primary_watermark == 9


def test_a_broker_no_more_listed_is_fenced_to_a_poll_and_unregistered_to_a_log(story: Story, poll: Story) -> None:
    for source, event in ((poll, EventKind.FENCED), (story, EventKind.UNREGISTERED)):
        source.snapshot()
        source.later().snapshot(brokers=(1, 2), reason=SnapshotReason.HISTORY_LOST)
        state, changes = run(source.seen)
        assert [it.is_fenced or not it.is_registered for it in state.brokers.values()] == [False, False, True]
        assert [it.event for change in changes for it in change.events] == [event]


@pytest.mark.parametrize(
    ("begun", "ended", "event"),
    [
        ({"adding_replicas": (4,), "replicas": (1, 2, 3, 4)}, (2, 3, 4), EventKind.REASSIGNMENT_COMPLETED),
        ({"adding_replicas": (4,), "replicas": (1, 2, 3, 4)}, (1, 2, 3), EventKind.REASSIGNMENT_CANCELLED),
        ({"removing_replicas": (3,)}, (1, 2), EventKind.REASSIGNMENT_COMPLETED),
        ({"removing_replicas": (3,)}, (1, 2, 3), EventKind.REASSIGNMENT_COMPLETED),
    ],
)
def test_a_reassignment_is_cancelled_if_what_it_added_is_gone_and_nothing_else_is(
    story: Story, begun: dict[str, Any], ended: tuple[int, ...], event: EventKind
) -> None:
    story.snapshot()
    story.later().partition(partition_epoch=1, **begun)
    story.later().partition(partition_epoch=2, isr=(1, 2), **begun)
    story.later().partition(partition_epoch=3, replicas=ended, isr=ended, leader=ended[0])
    _, changes = run(story.seen)
    found = [[kind for kind in kinds(step) if kind.startswith("reassignment")] for step in steps(changes)]
    assert found == [[EventKind.REASSIGNMENT_BEGAN], [], [event]]


def test_the_voters_of_the_primary_source_come_with_the_controller(story: Story) -> None:
    story.controller(101, 1)
    story.snapshot()
    story.later().controller(102, 2)
    primary = replace(story.seen[-1], voters=(101, 102), caught_up=(102,))
    other = replace(primary, source="quorum:a", source_kind=SourceKind.NONE, sequence=1, controller=103)
    for told, controller in ((primary, 102), (other, 101)):
        cluster = run([*story.seen[:-1], told])[0].clusters[ClusterId("cluster-1")]
        assert (cluster.controller, cluster.quorum_voters) == (controller, (101, 102))


def test_while_the_log_cannot_be_read_brokers_say_who_leads(story: Story) -> None:
    story.controller(101, 1)
    story.snapshot()
    asked = {"source": "quorum:a", "source_kind": SourceKind.NONE}
    story.later().controller(102, 2)
    said = replace(story.seen[-1], **asked, sequence=1, voters=(101, 102), is_led=True)
    assert run([*story.seen[:-1], said])[0].clusters[ClusterId("cluster-1")].controller == 101, "the log has its order"
    unsaid = replace(said, sequence=2, controller=-1, controller_epoch=-1, voters=None, is_led=False)
    cluster = run([*story.seen[:-1], said, unsaid])[0].clusters[ClusterId("cluster-1")]
    assert (cluster.quorum_voters, cluster.quorum_caught_up, cluster.is_quorum_led) == ((101, 102), None, False)
    polls = Story("admin:a", SourceKind.POLL)
    polls.now = story.now + 61_000_000
    polls.snapshot()
    late = replace(said, sequence=3, controller=103, controller_epoch=3, occurred_not_after=polls.now)
    state, changes = run([*story.seen[:-1], *polls.seen, late])
    assert (state.clusters["cluster-1"].controller, state.clusters["cluster-1"].controller_changes) == (103, 1)
    assert "controller 101 to 103, epoch 3" in [event.detail for change in changes for event in change.events]


def test_the_controllers_that_are_registered_are_kept_with_what_they_support(story: Story) -> None:
    story.controller(101, 1)
    story.snapshot()
    story.later().controller(101, 1)
    registered = replace(story.seen[-1], registered_controllers=(101, 102), registered_levels=(30, 21))
    state, changes = run([*story.seen[:-1], registered])
    cluster = state.clusters["cluster-1"]
    assert (cluster.registered_controllers, cluster.registered_levels) == ((101, 102), (30, 21))
    assert not [event for change in changes for event in change.events], "who leads is the same"
    with pytest.raises(InvalidObservation, match="differ in length"):
        replace(registered, registered_levels=(30,))


def test_a_controller_that_fails_over_is_an_event(story: Story) -> None:
    story.controller(101, 1)
    story.snapshot()
    story.later().controller(102, 2)
    state, changes = run(story.seen)
    assert [event.event for change in changes for event in change.events] == [EventKind.CONTROLLER_CHANGE]
    assert (state.clusters["cluster-1"].controller, state.clusters["cluster-1"].controller_changes) == (102, 1)


def test_a_controller_that_restarts_is_elected_again_and_no_other_one(story: Story) -> None:
    story.controller(101, 1)
    story.snapshot()
    story.later().controller(101, 2)
    _, changes = run(story.seen)
    assert [event.detail for change in changes for event in change.events] == ["controller 101 again, epoch 2"]


def _renumbered(observations: Sequence[Observation], source: str) -> list[Observation]:
    return [replace(item, source=source, sequence=n) for n, item in enumerate(observations, start=1)]


def test_a_poll_does_not_clear_what_it_cannot_see(story: Story, poll: Story) -> None:
    story.snapshot([{"replicas": (1, 2, 3), "isr": (), "leader": -1, "elr": (2,)}])
    poll.now = story.now
    poll.later(100)
    poll.snapshot([{"replicas": (1, 2, 3), "isr": (), "leader": -1, "partition_epoch": None}])
    state, changes = run([*story.seen, *poll.seen])
    assert next(state.partitions()).elr == (2,)
    assert steps(changes) == []


def test_a_gap_in_a_sources_numbers_is_told(story: Story) -> None:
    story.snapshot()
    story.later().partition(isr=(1, 2), partition_epoch=1, **LAG)
    lost = story.seen.pop()
    story.later().heartbeat()
    _, changes = run(story.seen)
    events = [event for change in changes for event in change.events]
    assert [event.event for event in events] == [EventKind.CHANGES_MISSED]
    assert f"after number {lost.sequence - 1}" in (events[0].detail or "")


def test_a_minimum_that_was_unset_while_nobody_looked_is_unset_by_the_next_snapshot(story: Story) -> None:
    story.config("1")
    story.snapshot([{"isr": (1,)}])
    story.later(100).config(None)
    story.snapshot([{"isr": (1,)}])
    story.config("2", ConfigOrigin.DESCRIBE)
    state, _ = run(story.seen)
    assert next(state.partitions()).is_under_min_isr is True


def test_a_log_reader_that_is_behind_does_not_bring_back_a_minimum_that_is_unset_by_then(story: Story) -> None:
    behind: Any = type(story)()
    behind.snapshot([{"isr": (1,)}])
    behind.later().config("2")
    story.source, story.now, story.offset = "metadata_log:b", behind.now + 5_000_000, behind.offset + 5
    story.snapshot([{"isr": (1,)}])
    state, _ = run([*behind.seen[:-1], *story.seen, behind.seen[-1]])
    assert next(state.partitions()).min_isr_configured is None


def test_a_topic_made_anew_has_the_minimum_of_its_name_although_the_old_one_is_buried_later(story: Story) -> None:
    story.snapshot([{}])
    story.later().partition(topic_id="topic-2", isr=(1,), partition_epoch=0, in_snapshot=True)
    story.removed()
    story.later().config("2")
    state, _ = run(story.seen)
    assert [partition.is_under_min_isr for partition in state.partitions() if not partition.is_deleted] == [True]


def test_totals_outlive_a_topic_that_goes_and_comes_back_under_its_id(poll: Story) -> None:
    poll.snapshot([{"partition_epoch": None}])
    poll.later().partition(isr=(1, 2), partition_epoch=None, **LAG)
    poll.later(10)
    poll.snapshot([], reason=SnapshotReason.PERIODIC)
    poll.later(10)
    poll.snapshot([{"partition_epoch": None}], reason=SnapshotReason.PERIODIC)
    state, _ = run(poll.seen)
    partition = next(state.partitions())
    assert (partition.is_deleted, partition.isr_shrinks, partition.under_replicated_seconds) == (False, 1, 10.0)
    assert partition.change_number == 3, "changes of one id are numbered on: shrunk, deleted, there again"


def test_an_older_snapshot_does_not_unregister_a_newer_broker(story: Story) -> None:
    story.snapshot()
    story.later().broker(4, broker_epoch=9)
    before = [item for item in story.seen if item.kind != "broker" or item.in_snapshot]
    state, _ = run([*story.seen, *_renumbered(before, "metadata_log:b")])
    assert [broker.is_registered for broker in state.brokers.values()] == [True] * 4


def test_a_broker_that_registers_anew_has_nothing_of_the_one_before(story: Story) -> None:
    story.snapshot()
    story.later().broker(3, broker_epoch=6, rack="a", host="old", port=1)
    story.later().broker(3, broker_epoch=6, fenced=True)
    brokers = fold(ReplicationState(), story.seen).touched.brokers
    assert {(each.rack, each.host) for each in brokers.values() if each.broker == 3} == {("a", "old")}
    story.later().broker(3, broker_epoch=7, host="new", port=1)
    brokers = fold(ReplicationState(), story.seen).touched.brokers
    assert {(each.rack, each.host) for each in brokers.values() if each.broker == 3} == {(None, "new")}


@pytest.mark.parametrize(
    ("text", "minimum"), [("2", 2), (" 2", 2), ("2\n", 2), ("+2", 2), ("-2", None), ("2.0", None), ("2147483648", None)]
)
def test_a_minimum_is_read_as_kafka_reads_it(story: Story, text: str, minimum: int | None) -> None:
    story.snapshot()
    story.config(text)
    assert only(state_after(story.seen)).min_isr_configured == minimum


@pytest.mark.parametrize("topic", ["orders", ""])
def test_a_minimum_removed_from_the_log_makes_unknown_what_a_broker_answered(story: Story, topic: str) -> None:
    """A broker answers with the value that counts: it may be the one that was removed."""
    story.snapshot([{"isr": (1,)}])
    story.config("2", topic=topic)
    story.config("2", ConfigOrigin.DESCRIBE)
    story.later(10).config(None, topic=topic)
    story.later(60).heartbeat()
    state, changes = run(story.seen)
    assert next(state.partitions()).is_under_min_isr is None
    assert next(state.partitions()).under_min_isr_seconds == 10

    story.seen.clear()
    story.config("1", ConfigOrigin.DESCRIBE)
    state, _ = run(story.seen, state)
    assert next(state.partitions()).is_under_min_isr is False
    assert [dict(change.configs) for change in changes if change.configs][-1].keys() == {
        ConfigKey(ClusterId("cluster-1"), topic, ConfigOrigin.LOG),
        ConfigKey(ClusterId("cluster-1"), "orders", ConfigOrigin.DESCRIBE),
    }


def test_a_minimum_in_the_log_counts_from_its_own_time(story: Story) -> None:
    story.config("1")
    story.snapshot([{"isr": (1,)}])
    story.later(600).config("2")
    story.later(10).partition(isr=(1, 2), partition_epoch=1)
    state, _ = run(story.seen)
    assert next(state.partitions()).under_min_isr_seconds == 10


def test_directories_that_a_new_registration_lacks_have_not_failed(story: Story) -> None:
    story.snapshot()
    story.later().broker(2, broker_epoch=6, log_dirs=("d2", "d3"))
    story.later().broker(2, broker_epoch=6, log_dirs=("d3",))
    _, changes = run(story.seen)
    found = [event for change in changes for event in change.events if event.event is EventKind.LOG_DIR_OFFLINE]
    assert [(event.event_broker, event.detail) for event in found] == [(2, "d2")]


def test_elections_between_two_polls_are_counted_by_the_leader_epoch_and_are_no_gap(poll: Story) -> None:
    nothing = {"partition_epoch": None}
    poll.snapshot([{"leader_epoch": 5, "isr": (1, 2), **nothing}])
    poll.later(10).partition(leader_epoch=9, isr=(1, 2), **nothing)
    poll.later(10).partition(leader_epoch=10, leader=2, isr=(1, 2), **nothing)
    poll.partition(1, leader_epoch=2, **nothing)  # created, and elected twice since
    state, changes = run(poll.seen)
    first, second = state.partitions()
    assert [change.missed for change in steps(changes)] == [3, 0, 2]
    assert (first.missed_changes, second.missed_changes) == (3, 2)
    assert EventKind.CHANGES_MISSED in kinds(steps(changes)[0])
    assert EventKind.PROTOCOL_VIOLATION not in kinds(steps(changes)[0])
    assert first.unknown_seconds == 0.0


def test_elections_between_two_polls_make_what_was_read_before_them_stale(poll: Story) -> None:
    poll.snapshot([{"leader_epoch": 5, "partition_epoch": None}])
    poll.later(30).partition(leader_epoch=7, partition_epoch=None)
    poll.later(30).partition(leader_epoch=6, isr=(1, 2), partition_epoch=None)
    state, _ = run(poll.seen)
    (partition,) = state.partitions()
    assert (partition.leader_epoch, partition.isr) == (7, (1, 2, 3))


def test_a_minimum_reaches_every_partition_behind_one_that_has_it_already(story: Story) -> None:
    story.snapshot([{}, {}])
    state, _ = run(story.seen)
    first, _ = sorted(state.partitions(), key=lambda partition: partition.partition)
    state.put_partition(first._replace(min_isr_configured=3))
    told = len(story.seen)
    story.later().config("3")
    _, changes = run(story.seen[told:], state)
    assert [(change.after.partition, change.after.min_isr_configured) for change in changes if change.after] == [(1, 3)]


@pytest.mark.parametrize("value", ["9" * 20, "9" * 5_000, "-1", "\u00b2", "", " 10000"])
def test_a_time_that_is_no_number_of_milliseconds_is_not_taken_over(story: Story, value: str) -> None:
    story.snapshot()
    story.config("30000", key="replica.lag.time.max.ms", topic="")
    story.later().config(value, key="replica.lag.time.max.ms", topic="")
    folded = fold(ReplicationState(), story.seen)
    assert folded.touched.clusters[ClusterId("cluster-1")].replica_lag_time_max_ms == 30_000
    assert changes_to_arrow(folded.changes).num_rows == len(folded.changes)


@pytest.mark.parametrize("is_late", [False, True], ids=["in the first report", "afterwards"])
def test_an_election_that_lost_records_counts_where_the_partition_is_first_seen_but_in_no_baseline(
    story: Story, *, is_late: bool
) -> None:
    recovering = {"leader_recovering": True, "isr": (2,), "leader": 2, "leader_epoch": 1, "partition_epoch": 1}
    story.snapshot([{}] if is_late else [recovering])
    if is_late:
        story.later().partition(1, **recovering)
    state, changes = run(story.seen)
    assert [partition.unclean_elections for partition in state.partitions() if partition.isr == (2,)] == [int(is_late)]
    assert [kinds(change) for change in steps(changes)] == [
        [
            EventKind.TOPIC_CREATED,
            EventKind.CHANGES_MISSED,
            EventKind.UNCLEAN_ELECTION,
            EventKind.UNDER_REPLICATED_BEGAN,
        ]
    ] * is_late


def test_times_that_brokers_report_replace_the_defaults_of_kafka_and_nothing_else_does() -> None:
    defaults = ConfiguredTimes()
    assert defaults.configured(None, 0) == defaults
    reported = defaults.configured(10_000, 18_000)
    assert (reported.replica_lag_time, reported.broker_session) == (10_000_000, 18_000_000)
    assert reported.session_after_lag == 13_000_000, "8 s later, as seen by a leader that looks every 5 s"
    assert defaults.configured(30_000, 9_000).session_after_lag == 15_000_000, "its session ended first"
