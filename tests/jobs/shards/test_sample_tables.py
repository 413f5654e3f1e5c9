"""One batch writes all tables of samples: killed between two of them, started again, and how long it rests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming.changes.advice.reconciliation import METRIC_OF, Meter
from streaming.contracts.codec import encode
from streaming.contracts.columns import Table
from streaming.contracts.identifiers import BrokerId, ClusterId, LogPosition, Micros, TopicId
from streaming.contracts.observations import Observation, SourceKind
from streaming.contracts.sample_tables import REPLICA_OFFSETS, SAMPLE_TABLES
from streaming.contracts.samples import BrokerMetricObserved, LogDirectoryObserved, ReplicaOffsetsObserved
from streaming.contracts.tables import QUARANTINE
from streaming.delta.log.cluster_files import Adds
from streaming.delta.log.writer import Writer
from streaming.delta.samples.isr_reconciliation import ReconciliationTable
from streaming.delta.store.place import Place
from streaming.errors import IsrwatchError, TableUnreadable
from streaming.jobs.shards import samples
from streaming.jobs.shards.samples import LONGEST_REST_SECONDS, REST_PER_WORK, SampleBatch, SampleProgress
from streaming.jobs.streams.bus_source import SCHEMA
from tests.plugins.batches import store_progress
from tests.plugins.pipeline import rows_of

ASKED, SCRAPED = "samples:a", "broker_metrics:a"
LOG_ID = 7
CLUSTER = ("cluster_id", "cluster")


def envelope(source: str, at: int) -> dict[str, Any]:
    return {
        "cluster_id": ClusterId("c"), "cluster": "prod", "source": source, "source_kind": SourceKind.NONE,
        "occurred_not_before": Micros(at), "occurred_not_after": Micros(at), "collected_at": Micros(at),
        "broker": BrokerId(1),
    }  # fmt: skip


def offsets(at: int, partition: int = 0) -> ReplicaOffsetsObserved:
    told = envelope(ASKED, at)
    return ReplicaOffsetsObserved(**told, topic_id=TopicId("t"), topic="orders", partition=partition, high_watermark=at)


def directory(at: int, name: str = "/data") -> LogDirectoryObserved:
    return LogDirectoryObserved(**envelope(ASKED, at), log_dir=name, is_online=True)


def metric(at: int, name: str = "m") -> BrokerMetricObserved:
    return BrokerMetricObserved(**envelope(SCRAPED, at), metric=name, metric_value=float(at))


def records(*observations: Observation | bytes) -> pa.Table:
    """Give what Spark hands to a batch: a moment of both logs, one record a position."""
    payloads = [each if isinstance(each, bytes) else encode(each) for each in observations]
    sources = [ASKED if isinstance(each, bytes) else each.source for each in observations]
    return pa.Table.from_pylist([
        {"source": source, "position": position, "payload": payload, "log_id": LOG_ID}
        for position, (source, payload) in enumerate(zip(sources, payloads, strict=True))
    ], schema=SCHEMA)  # fmt: skip


LOGS = records(
    offsets(1), directory(1), b"?", metric(1), offsets(2), metric(2), b"?", directory(3), offsets(3), metric(3)
)
FIRST = 5


def tables(place: Path) -> dict[str, list[str]]:
    return {table.name: sorted(map(str, rows_of(place, table.name))) for table in SAMPLE_TABLES}


@pytest.mark.parametrize("table", range(3))
@pytest.mark.parametrize("is_stored", [False, True], ids=["before any report", "after a report"])
def test_what_fails_between_two_tables_is_applied_again_and_nothing_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: int, *, is_stored: bool
) -> None:
    """A table that cannot be written ends the batch, whichever it is; the next start has all of it."""
    undisturbed = SampleBatch(tmp_path / "expected")
    for part in (LOGS.slice(0, FIRST), LOGS.slice(FIRST)):
        undisturbed.apply(part)
    add, calls = Writer.add_files, iter(range(3))

    def failing(self: Writer, *given: Any) -> int:
        if self.path.name != QUARANTINE.name and next(calls) == table:
            raise TableUnreadable("a damaged file")
        return add(self, *given)

    place = tmp_path / "tables"
    batch = SampleBatch(place)
    batch.apply(LOGS.slice(0, FIRST))
    if is_stored:
        store_progress(place, batch)
    monkeypatch.setattr(Writer, "add_files", failing)
    with pytest.raises(TableUnreadable, match="a damaged file"):
        batch.apply(LOGS.slice(FIRST))
    monkeypatch.setattr(Writer, "add_files", add)

    again = SampleBatch(place)
    assert again.at(ASKED).position == (4 if is_stored else -1)
    again.apply(LOGS)

    assert tables(place) == tables(tmp_path / "expected")
    assert [state.quarantined for state in again.sources()[0] if state.source == ASKED] == [2]
    assert sorted(row["position"] for row in rows_of(place, "quarantine")) == [2, 6]


def test_no_source_is_ahead_of_the_comparison_with_the_change_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its samples come again if it cannot be written: how far sources are is stored while the query is down, too."""

    def failing(*_given: object) -> None:
        raise TableUnreadable("a damaged file")

    batch = SampleBatch(tmp_path)
    meter = METRIC_OF[Meter.ISR_SHRINKS]
    batch.apply(records(metric(1, meter)))
    monkeypatch.setattr(ReconciliationTable, "put", failing)
    with pytest.raises(TableUnreadable, match="a damaged file"):
        batch.apply(records(metric(1, meter), metric(2, meter)))
    assert batch.at(SCRAPED).position == 0


def test_a_table_that_cannot_be_written_stops_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Writer.add_files

    def failing(self: Writer, *given: Any) -> int:
        if self.path.name == REPLICA_OFFSETS.name:
            raise IsrwatchError("the disk refuses")
        return add(self, *given)

    batch = SampleBatch(tmp_path)
    monkeypatch.setattr(Writer, "add_files", failing)
    with pytest.raises(IsrwatchError, match="the disk refuses"):
        batch.apply(LOGS)
    assert {name for name, rows in tables(tmp_path).items() if rows} == {"log_directories", "broker_metrics"}
    assert batch.at(ASKED).position == -1
    monkeypatch.undo()
    again = SampleBatch(tmp_path)
    again.apply(LOGS)
    assert {name for name, rows in tables(tmp_path).items() if rows} >= {"replica_offsets", "log_directories"}


def test_a_start_continues_behind_the_last_record_whichever_tables_a_source_feeds(tmp_path: Path) -> None:
    batch = SampleBatch(tmp_path)
    batch.apply(LOGS)
    store_progress(tmp_path, batch)
    again = SampleBatch(tmp_path)
    assert again.applied == {ASKED: LogPosition(8, LOG_ID), SCRAPED: LogPosition(9, LOG_ID)}
    assert again.apply(LOGS).observations == 0


def test_whoever_asks_while_sources_advance_sees_no_position_that_was_not_applied(tmp_path: Path) -> None:
    """A new source has its position at once: one at 0 would be stored, and the first record never be read."""
    progress, seen = SampleProgress(tmp_path, {}), list[int]()

    def samples() -> Iterator[pa.Table]:
        for at in (1, 2):
            observed = offsets(at)
            yield pa.table({name: [getattr(observed, name)] for name in (*CLUSTER, "source", "collected_at")})
            seen.extend(state.position for state in progress.sources()[0])

    progress.advance(samples(), {}, {ASKED: 5}, {ASKED: LOG_ID})
    assert seen == [5, 5]
    assert [(state.position, state.log_id) for state in progress.sources()[0]] == [(5, LOG_ID)]


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Give how long batches rest; to write a row of positions takes a second, any other table a hundredth."""
    moment, taken = [0.0], list[float]()
    write = samples.write_cluster

    def timed(directory: Place, definition: Table, cluster_id: ClusterId, rows: pa.Table) -> Adds:
        moment[0] += len(rows) if definition is REPLICA_OFFSETS else 0.01
        return write(directory, definition, cluster_id, rows)

    monkeypatch.setattr(samples, "write_cluster", timed)
    monkeypatch.setattr(samples.time, "perf_counter", lambda: moment[0])
    monkeypatch.setattr(samples.time, "sleep", taken.append)
    yield taken
    monkeypatch.undo()


def test_only_what_is_small_in_its_table_makes_the_query_rest(tmp_path: Path, rests: list[float]) -> None:
    """So samples of a table that is written quickly delay no others, nor do those that fill a large one."""
    batch = SampleBatch(tmp_path)
    every = [offsets(1, partition) for partition in range(20)]
    batch.apply(records(*every, *(metric(1, f"m{number}") for number in range(20))))
    assert rests.pop() == 0.0
    many = [offsets(2, partition) for partition in range(20)]
    batch.apply(records(*[b"?"] * 40, *many, metric(2, "m1")))
    assert rests.pop() == pytest.approx(0.01 * REST_PER_WORK), "the large table is written, and is no reason"
    batch.apply(records(*[b"?"] * 80, offsets(3)))
    assert rests.pop() == LONGEST_REST_SECONDS < 20 * REST_PER_WORK
