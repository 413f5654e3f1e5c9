"""Partitions that stay columns: the same state, the same counts, whoever asks for whichever topic when."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.observations import Observation, SnapshotEnd
from streaming.contracts.state import PartitionState
from streaming.contracts.tables import PARTITION_STATE_TABLE
from streaming.delta.changes.log import ChangeLog, changes_to_arrow
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.projections import clusters_state
from streaming.delta.projections.clusters_state import RecoveredState, StoredPartitions, in_topics_with
from streaming.delta.projections.of_clusters import newest_partitions, states_after
from streaming.delta.state import states_of
from streaming.delta.tally_rows import add_rows
from tests.changes.conftest import Story, state_after
from tests.examples import examples
from tests.plugins.derived import Projections
from tests.plugins.played import decoded
from tests.strategies import streams

States = dict[tuple[str, str, int], PartitionState]


def rows_of(told: list[Observation]) -> pa.Table:
    """The rows of ``partition_state`` after a fold."""
    nothing = arrow_schema(PARTITION_STATE_TABLE).empty_table()
    return newest_partitions(nothing, states_after(changes_to_arrow(fold(ReplicationState(), told).changes), 0), 0)


def keyed(partitions: Iterable[PartitionState]) -> States:
    return {(each.cluster_id, each.topic_id, each.partition): each for each in partitions}


def numbers(tally: SuspectTally) -> dict[tuple[Any, ...], int]:
    return {entry[:-1]: entry.value for entry in tally.entries() if entry.value}


def recovered(rows: pa.Table) -> ReplicationState:
    holder = RecoveredState()
    holder.put_partitions(rows)
    return holder.at(0).state


@settings(max_examples=examples(12))
@given(told=streams(), seed=st.randoms(use_true_random=False))
def test_columns_are_the_state_in_whichever_order_topics_are_asked_for(told: list[Observation], seed: Any) -> None:
    rows = rows_of(told)
    objects = ReplicationState()
    for partition in states_of(PartitionState, rows):
        objects.put_partition(partition)
    state, keys = recovered(rows), list(objects.topic_keys())
    assert sorted(state.topic_keys()) == sorted(keys)
    assert state.topic_ids == objects.topic_ids

    seed.shuffle(keys)
    for key in keys[: len(keys) // 2]:
        assert state.topic(key) == objects.topics[key]
    state.load(keys[len(keys) // 2 : -1])

    assert sorted(state.topic_keys()) == sorted(keys)
    assert keyed(state.partitions()) == keyed(objects.partitions())
    assert state.stored is None


@settings(max_examples=examples(12))
@given(told=streams(), chosen=st.randoms(use_true_random=False))
def test_columns_count_as_much_as_their_objects(told: list[Observation], chosen: Any) -> None:
    rows = rows_of(told)
    whole = SuspectTally(states_of(PartitionState, rows))
    stored = StoredPartitions(rows)
    counted = SuspectTally(stored.take([key for key in stored if chosen.random() < 0.5]))
    add_rows(counted, stored.rows())
    assert numbers(counted) == numbers(whole)


def columns_set(rows: pa.Table, values: dict[str, list[Any]]) -> pa.Table:
    """The same rows with other values in some columns."""
    for name, column in values.items():
        field = rows.schema.field(name)
        rows = rows.set_column(rows.column_names.index(name), field, pa.array(column, field.type))
    return rows


def assert_counted(rows: pa.Table) -> None:
    """The columns count as much as their objects."""
    counted = SuspectTally()
    add_rows(counted, rows)
    assert numbers(counted) == numbers(SuspectTally(states_of(PartitionState, rows)))


def test_begins_of_very_many_episodes_are_summed_without_overflow() -> None:
    story = Story()
    story.snapshot([{}])
    many = pa.concat_tables([rows_of(story.seen)] * 5_300)
    begins = [1_790_000_000_000_000 + number for number in range(many.num_rows)]
    closed = [2_000_000_000.25] * many.num_rows  # 63 years each: their sum has more than 2^63 microseconds, too
    assert_counted(
        columns_set(
            many, {"partition": [*range(many.num_rows)], "under_replicated_since": begins, "offline_seconds": closed}
        )
    )


def test_nulls_count_as_what_they_are_read_as() -> None:
    story = Story()
    story.snapshot([{}] * 3)
    rows = rows_of(story.seen)
    nothing = [None, None, None]
    assert_counted(columns_set(rows, {"adding_replicas": [None, [], [7]], "removing_replicas": [[], [], None]}))
    assert_counted(
        columns_set(
            rows, {"leader": [None, 1, None], "is_offline": nothing, "is_deleted": nothing, "isr_shrinks": nothing}
        )
    )


@settings(max_examples=examples(12))
@given(told=streams(), size=st.integers(1, 7))
def test_a_fold_over_columns_is_a_fold_over_objects(told: list[Observation], size: int) -> None:
    """Half of a story is read back from rows; the other half goes on from there, a few observations at a time."""
    half = len(told) // 2
    objects = state_after(told[:half])
    columns = recovered(rows_of(told[:half]))
    columns.brokers, columns.clusters, columns.sources = (
        dict(objects.brokers),
        dict(objects.clusters),
        dict(objects.sources),
    )
    columns.configs = dict(objects.configs)

    for begin in range(half, len(told), size):
        expected, actual = (fold(state, told[begin : begin + size]) for state in (objects, columns))
        assert actual.changes == expected.changes
        assert columns.apply(actual.touched) == objects.apply(expected.touched)

    assert keyed(columns.partitions()) == keyed(objects.partitions())


@settings(max_examples=examples(12))
@given(told=streams(), kept=st.randoms(use_true_random=False), taken=st.randoms(use_true_random=False))
def test_topics_beyond_some_counts_are_those_of_such_partitions(told: list[Observation], kept: Any, taken: Any) -> None:
    rows = rows_of(told)
    state = recovered(rows)
    state.load([key for key in list(state.topic_keys()) if taken.random() < 0.5])
    clusters = {row["cluster_id"] for row in rows.to_pylist()}
    counts = {row["topic_id"]: kept.randrange(4) for row in rows.to_pylist() if kept.random() < 0.8}
    for cluster_id in clusters:
        assert set(state.topics_beyond(cluster_id, counts)) == {
            (cluster_id, row["topic_id"])
            for row in rows.to_pylist()
            if row["cluster_id"] == cluster_id and row["partition"] >= counts.get(row["topic_id"], 0)
        }


def test_the_end_of_a_report_without_news_decodes_no_topic() -> None:
    story = Story()
    story.snapshot([{}, {}])
    before = state_after(story.seen)
    state = recovered(rows_of(story.seen))
    state.brokers, state.clusters, state.sources = dict(before.brokers), dict(before.clusters), dict(before.sources)
    told = len(story.seen)
    story.later().snapshot([{}, {}])
    end = [each for each in story.seen[told:] if isinstance(each, SnapshotEnd)]
    assert len(end) == 1
    assert fold(state, end).dropped == ()
    assert not state.topics


def test_a_topic_is_decoded_when_it_is_asked_for_and_no_other() -> None:
    story = Story()
    story.snapshot([{}, {}])
    first = rows_of(story.seen)
    another = first.set_column(
        first.column_names.index("topic_id"), "topic_id", pa.array(["other"] * first.num_rows, pa.string())
    )
    state = recovered(pa.concat_tables([first, another, first.slice(1, 0)]))
    key, other = sorted(state.topic_keys(), key=lambda each: each[1] == "other")
    assert set(state.topic(key)) == {0, 1}
    assert list(state.topics) == [key]
    assert list(state.stored or ()) == [other]
    assert state.topic(("nobody", "nothing")) == {}  # type: ignore[arg-type]


def test_topics_with_tombstones_are_objects_from_the_start() -> None:
    story = Story()
    story.snapshot([{}, {}])
    live = rows_of(story.seen)
    story.later().removed()
    rows = rows_of(story.seen)
    assert recovered(rows).topics.keys() == {(row["cluster_id"], row["topic_id"]) for row in rows.to_pylist()}
    assert in_topics_with(rows, "is_deleted").to_pylist() == [True] * rows.num_rows
    assert in_topics_with(live, "is_deleted").to_pylist() == [False] * live.num_rows


def test_very_many_topics_are_decoded_in_several_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters_state, "TOPICS_AT_ONCE", 2)
    story = Story()
    story.snapshot([{}])
    rows = rows_of(story.seen)
    place = rows.column_names.index("topic_id")
    many = pa.concat_tables(rows.set_column(place, "topic_id", pa.array([f"id-{each}"])) for each in range(5))
    stored = StoredPartitions(many)
    taken = stored.take(list(stored))
    assert sorted(chain(each.topic_id for each in taken)) == [f"id-{each}" for each in range(5)]
    assert (len(stored), stored.rows().num_rows) == (0, 0)


@settings(max_examples=examples(12))
@given(told=streams(), cuts=st.lists(st.integers(0, 60), max_size=3))
def test_the_newest_rows_laid_over_the_known_ones_are_the_state(told: list[Observation], cuts: list[int]) -> None:
    state, rows = ReplicationState(), arrow_schema(PARTITION_STATE_TABLE).empty_table()
    bounds = sorted({0, len(told), *(min(cut, len(told)) for cut in cuts)})
    for version, (start, end) in enumerate(itertools.pairwise(bounds)):
        folded = fold(state, told[start:end])
        state.apply(folded.touched)
        rows = newest_partitions(rows, states_after(changes_to_arrow(folded.changes), version), version)
        assert set(rows["as_of_version"].to_pylist()) <= {version}
    read = list(states_of(PartitionState, rows))
    assert keyed(state.partitions()) == keyed(read)
    assert len(read) == len(keyed(read))


def test_a_round_without_changed_partitions_moves_the_version_and_writes_no_row(tmp_path: Path) -> None:
    story, truth, state = Story(), ChangeLog(tmp_path), ReplicationState()
    projections = Projections(tmp_path)
    story.snapshot([{}, {}])
    for number in range(2):
        folded = fold(state, story.seen)
        state.apply(folded.touched)
        version = truth.commit(changes_to_arrow(folded.changes), {"a": number})
        projections.project(projections.recover(version))
        story.seen = []
        story.later().heartbeat()

    table = DeltaTable(str(tmp_path / "partition_state"))

    assert table.transaction_version("partition_changes") == version
    assert len(table.file_uris()) == 1
    assert decoded(Projections(tmp_path).recover(version).state) == state
