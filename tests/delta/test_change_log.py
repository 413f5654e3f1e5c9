from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.changes.tombstones import without_expired
from streaming.contracts.observations import Observation
from streaming.delta.changes.log import UNCOMMITTED, ChangeLog, changes_to_arrow
from streaming.delta.changes.reader import rows_between
from streaming.delta.log.queries import query
from streaming.delta.log.table_log import actions_of
from streaming.delta.projections.clusters_state import ClustersState
from streaming.delta.state import apply_changes
from streaming.errors import TableRefused
from tests.changes.conftest import LAG, Story
from tests.examples import examples
from tests.jobs.shards.test_batch import rows as rows_in
from tests.plugins.derived import Projections
from tests.plugins.played import decoded
from tests.strategies import streams


def told() -> Story:
    story = Story()
    story.controller(101, 1)
    story.config("2")
    story.snapshot([{}, {}])
    story.later().partition(0, isr=(1,), partition_epoch=1, **LAG)
    story.later().broker(3, fenced=True)
    story.later().partition(1, isr=(1, 2), partition_epoch=1, **LAG)
    return story


def changed() -> tuple[ReplicationState, pa.Table]:
    state = ReplicationState()
    folded = fold(state, told().seen)
    state.apply(folded.touched)
    return state, changes_to_arrow(folded.changes)


def test_a_commit_carries_the_changes_and_the_position_of_every_source(tmp_path: Path) -> None:
    _, rows = changed()
    log = ChangeLog(tmp_path)
    assert log.at("a").position == -1
    version = log.commit(rows, {"a": 17, "b": 4})
    again = ChangeLog(tmp_path)
    assert (again.version, again.at("a").position, again.at("b").position) == (version, 17, 4)
    assert rows_between(tmp_path / "partition_changes", -1, version).select(rows.column_names).equals(rows)


def test_each_row_carries_its_version_its_place_and_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.delta.log.maintenance.COMMITS_BETWEEN_ROUNDS", 2)  # versions that add no row between
    _, rows = changed()
    log, path = ChangeLog(tmp_path), tmp_path / "partition_changes"
    expected: list[tuple[int, int]] = []
    windows: list[tuple[int, int]] = []
    for number in range(5):
        before = time.time_ns() // 1000
        version = log.commit(rows, {"a": number})
        windows += [(before, time.time_ns() // 1000)] * rows.num_rows
        expected += [(version, ordinal) for ordinal in range(rows.num_rows)]
        assert {"appId": "position/a", "version": number} in [
            {key: action["txn"][key] for key in ("appId", "version")}
            for action in actions_of(path, version)
            if "txn" in action
        ], "the rows of a version are in the entry of its commit"

    stored = query(
        DeltaTable(str(path)),
        "SELECT version, ordinal, arrow_cast(committed_at, 'Int64') AS moment FROM rows ORDER BY version, ordinal",
    )

    versions, ordinals, moments = (column.to_pylist() for column in stored.columns)
    assert list(zip(versions, ordinals, strict=True)) == expected
    assert log.version > 5, "other versions lie between"
    assert all(begin <= moment <= end for (begin, end), moment in zip(windows, moments, strict=True))


def test_the_loser_of_a_race_stops_and_writes_nothing(tmp_path: Path) -> None:
    _, rows = changed()
    first, second = ChangeLog(tmp_path), ChangeLog(tmp_path)
    first.commit(rows, {"a": 1})
    with pytest.raises(TableRefused, match="another job writes"):
        second.commit(rows, {"a": 2})
    assert ChangeLog(tmp_path).at("a").position == 1


def test_a_writer_that_was_followed_by_another_one_must_not_open_again(tmp_path: Path) -> None:
    _, rows = changed()
    first = ChangeLog(tmp_path)
    first.commit(rows, {"a": 1})
    first.check_ours()
    ChangeLog(tmp_path).commit(rows, {"a": 2})
    with pytest.raises(TableRefused, match="another job writes"):
        first.check_ours()


def test_derived_tables_never_go_back_when_two_jobs_write_them(tmp_path: Path) -> None:
    """Whoever knows less of the one truth leaves alone what the other has written."""
    _, rows = changed()
    truth = ChangeLog(tmp_path)
    early = truth.commit(rows, {"a": 1})
    slow, fast = Projections(tmp_path), Projections(tmp_path)
    behind = slow.recover(early)
    late = truth.commit(rows, {"a": 2})
    assert fast.project(fast.recover(late))
    assert not slow.project(behind)
    events = rows_in(tmp_path, "replication_events")
    assert len(events) == 2 * len({event["event_id"] for event in events}), "the same rows were committed twice"
    assert {row["as_of_version"] for row in rows_in(tmp_path, "partition_state")} == {late}


def test_rows_read_back_are_the_state_that_wrote_them(tmp_path: Path) -> None:
    state, rows = changed()
    ChangeLog(tmp_path).commit(rows, {"a": 1})
    again = ReplicationState()
    apply_changes(again, rows_between(tmp_path / "partition_changes", -1, 1))
    assert again == state


def test_compaction_neither_adds_rows_nor_moves_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.delta.log.maintenance.COMMITS_BETWEEN_ROUNDS", 3)
    _, rows = changed()
    truth = ChangeLog(tmp_path)
    for position in (1, 2, 3):
        truth.commit(rows, {"a": position})
    assert truth.version > 3, "it was compacted"
    assert rows_between(tmp_path / "partition_changes", 3, truth.version).num_rows == 0
    assert ChangeLog(tmp_path).at("a").position == 3
    assert truth.commit(rows, {"a": 4}) == truth.version
    assert rows_between(tmp_path / "partition_changes", -1, truth.version).num_rows == 4 * rows.num_rows


@pytest.mark.parametrize("crash_after", [0, 1, 2])
def test_a_start_rebuilds_the_state_from_derived_tables_however_far_they_lag(tmp_path: Path, crash_after: int) -> None:
    """The truth is committed in three parts; the derived tables are written after some of them only."""
    state = ReplicationState()
    truth = ChangeLog(tmp_path)
    seen = told().seen
    for number, part in enumerate((seen[:4], seen[4:8], seen[8:])):
        folded = fold(state, part)
        state.apply(folded.touched)
        version = truth.commit(changes_to_arrow(folded.changes), {"a": number})
        if number == crash_after:
            projections = Projections(tmp_path)
            projections.project(projections.recover(version))

    recovered = Projections(tmp_path).recover(truth.version)

    assert decoded(recovered.state) == state


def test_derived_tables_hold_every_event_once_and_the_sums_of_the_brokers(tmp_path: Path) -> None:
    _, rows = changed()
    truth = ChangeLog(tmp_path)
    version = truth.commit(rows, {"a": 1})
    projections = Projections(tmp_path)
    held = projections.recover(version)

    assert projections.project(held)
    assert not projections.project(held)

    events = rows_in(tmp_path, "replication_events")
    ids = [event["event_id"] for event in events]
    brokers = {row["broker"]: row for row in rows_in(tmp_path, "broker_state")}
    assert len(ids) == len(set(ids)) == 6
    assert [brokers[2]["led_partitions"], brokers[2]["hosted_partitions"], brokers[2]["in_sync_partitions"]] == [
        0,
        2,
        1,
    ]
    assert brokers[3]["isr_departures"] == [{"cause": "lag", "departures": 2}]
    assert brokers[3]["is_fenced"] is True


@pytest.mark.parametrize("projected", [(), (0,), (1,), (2,), (0, 1, 2)])
def test_a_start_forgets_expired_tombstones_whatever_came_last(tmp_path: Path, projected: tuple[int, ...]) -> None:
    story = told()
    story.later().removed()
    parts = [story.seen]
    story.seen = []
    story.later(2 * 86_400).heartbeat()
    parts.append(story.seen)
    story.seen = []
    story.later().partition(0, topic_id="topic-2", topic="payments", isr=(1,), partition_epoch=0)
    parts.append(story.seen)
    truth, held = ChangeLog(tmp_path), ClustersState()
    for number, part in enumerate(parts):
        folded = without_expired(held.state, fold(held.state, part))
        held.applied(folded.touched, truth.commit(changes_to_arrow(folded.changes), {"a": number}))
        if number in projected:
            Projections(tmp_path).project(held)

    recovered = Projections(tmp_path).recover(truth.version)
    Projections(tmp_path).project(recovered)
    (cluster,) = rows_in(tmp_path, "cluster_state")

    assert decoded(recovered.state).topics == decoded(held.state).topics
    assert recovered.state.clusters == held.state.clusters
    assert [row["topic"] for row in rows_in(tmp_path, "partition_state")] == ["payments"]
    assert (cluster["isr_shrinks"], cluster["topics"], cluster["expired_isr_shrinks"]) == (2, 1, 2)


@settings(max_examples=examples(20))
@given(told=streams())
def test_partitions_of_a_first_report_are_written_together_as_each_would_be_alone(told: list[Observation]) -> None:
    changes = fold(ReplicationState(), told).changes
    together = changes_to_arrow(changes)
    assert together.equals(changes_to_arrow(each for change in changes for each in change.singly()))
    assert together.schema.equals(UNCOMMITTED)


def test_what_partitions_have_in_common_is_not_mixed_up_between_blocks_and_shapes() -> None:
    story = Story()
    story.config("2")
    story.snapshot([{}, {"isr": (1, 2)}, {}, {"isr": (2,), "leader": 2, "leader_epoch": 7, "partition_epoch": 9}])
    changes = fold(ReplicationState(), story.seen).changes
    (listed,) = [change.listed for change in changes if change.listed is not None]
    rows = changes_to_arrow(changes).to_pylist()
    assert len(set(map(id, listed.shapes))) == 3
    expected = [(each.partition, list(each.isr), each.leader_epoch) for each in listed.values()]
    written = [row for row in rows if row["subject"] == "partition"]
    assert [(row["partition"], row["after"]["isr"], row["after"]["leader_epoch"]) for row in written] == expected
    assert [row["is_baseline"] for row in written] == [True] * 4
    assert {row["before"] for row in written} == {None}


def test_no_changes_are_no_rows() -> None:
    assert changes_to_arrow([]).equals(UNCOMMITTED.empty_table())
