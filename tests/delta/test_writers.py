"""Several jobs on one folder of tables: who may write what, and what happens to whoever comes second."""

from __future__ import annotations

import datetime as dt
import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.state import SourceLag, SourceState
from streaming.contracts.tables import PARTITION_CHANGES, SOURCE_PROGRESS
from streaming.delta.log import writer
from streaming.delta.log.definitions import create_or_upgrade
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.delta.log.storage import in_schema, read_file
from streaming.delta.log.writer import Writer
from streaming.delta.progress import ProgressTable
from streaming.delta.store.objects import StoreError, create
from streaming.errors import IsrwatchError, TableRefused
from streaming.jobs.shards.samples import SampleBatch
from tests.delta.test_change_log import changed
from tests.jobs.shards.test_batch import offsets_sample, published, rows


def sample(position: int) -> pa.Table:
    return published([offsets_sample(position)], start=position)


def test_the_second_writer_of_a_table_of_samples_stops_and_writes_nothing(tmp_path: Path) -> None:
    first, second = SampleBatch(tmp_path), SampleBatch(tmp_path)
    first.apply(sample(1))
    with pytest.raises(TableRefused, match=r"another job writes .*replica_offsets"):
        second.apply(sample(2))
    assert [row["high_watermark"] for row in rows(tmp_path, "replica_offsets")] == [1]
    first.check_ours()


def test_a_sample_writer_that_was_followed_by_another_one_must_not_open_again(tmp_path: Path) -> None:
    first = SampleBatch(tmp_path)
    first.apply(sample(1))
    SampleBatch(tmp_path).apply(sample(2))
    with pytest.raises(TableRefused, match="another job writes"):
        first.check_ours()


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_two_writers_of_one_version_differ_whatever_their_clocks_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """The clock of the writer before was an hour ahead; theirs say the same, or stand an hour apart."""
    moment = 1_700_000_000 * 10**9
    monkeypatch.setattr("time.time_ns", lambda: moment + 3600 * 10**9)
    SampleBatch(tmp_path).apply(sample(1))
    monkeypatch.setattr("time.time_ns", lambda: moment)
    paused, failed = SampleBatch(tmp_path), SampleBatch(tmp_path)
    monkeypatch.setattr("time.time_ns", lambda: moment + hours * 3600 * 10**9)
    new = SampleBatch(tmp_path)
    new.apply(sample(2))
    with pytest.raises(TableRefused, match="another job writes"):
        paused.apply(sample(3))
    with pytest.raises(TableRefused, match="another job writes"):
        failed.check_ours()
    new.apply(sample(4))
    assert [row["high_watermark"] for row in rows(tmp_path, "replica_offsets")] == [4]


def test_a_table_that_several_jobs_make_at_once_is_made_once(tmp_path: Path) -> None:
    together = Barrier(4)

    def make(directory: Path) -> int:
        together.wait()
        return create_or_upgrade(directory, SOURCE_PROGRESS).version()

    for number in range(10):
        with ThreadPoolExecutor(together.parties) as threads:
            versions = list(threads.map(make, [tmp_path / str(number)] * together.parties))
        assert versions == [0] * together.parties


@pytest.mark.parametrize("error", [StoreError("the answer was lost"), OSError(28, "No space left on device")])
def test_a_commit_with_a_late_error_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def committed_and_failed(place: Path, content: bytes) -> bool:
        create(place, content)
        raise error

    batch = SampleBatch(tmp_path / "a table")
    with monkeypatch.context() as failing:
        failing.setattr(writer, "create", committed_and_failed)
        batch.apply(sample(1))
    batch.apply(sample(2))
    assert [row["high_watermark"] for row in rows(tmp_path / "a table", "replica_offsets")] == [2]


def test_a_commit_that_failed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(_place: Path, _content: bytes) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    batch = SampleBatch(tmp_path)
    batch.apply(sample(1))
    monkeypatch.setattr(writer, "create", failed)
    with pytest.raises(IsrwatchError, match="Input/output error"):
        batch.apply(sample(2))
    assert [row["high_watermark"] for row in rows(tmp_path, "replica_offsets")] == [1]


ROUNDS = 15


def row(position: int) -> tuple[SourceState, SourceLag]:
    return SourceState(ClusterId("c"), "main", "s", SourceKind.POLL, position=position), SourceLag(restarts=position)


def positions(directory: Path) -> dict[str, list[int]]:
    found = rows(directory, "source_progress")
    return {
        channel: [row["position"] for row in found if row["channel"] == channel]
        for channel in sorted({row["channel"] for row in found})
    }


@pytest.mark.parametrize("days", [1, 2])
def test_each_day_of_a_commit_is_a_file_of_its_own_rows(tmp_path: Path, days: int) -> None:
    _, rows = changed()
    pieces = [with_column(rows, "date", dt.date(2026, 3, 1 + number)) for number in range(days)]
    adds = Writer.opened(tmp_path, PARTITION_CHANGES).written(pa.concat_tables(pieces))
    assert [add["partitionValues"] for add in adds] == [{"date": f"2026-03-0{1 + number}"} for number in range(days)]
    for add in adds:
        file = read_file(tmp_path / PARTITION_CHANGES.name, add["path"])
        expected = rows.drop_columns(["date"])
        assert in_schema(file, expected.schema, {}).equals(expected)
        assert in_schema(expected, expected.schema, {}).equals(expected)


def with_column(rows: pa.Table, name: str, value: Any) -> pa.Table:
    field = rows.schema.field(name)
    return rows.set_column(rows.schema.get_field_index(name), field, pa.repeat(pa.scalar(value, field.type), len(rows)))


def test_a_channel_replaces_its_own_rows_only(tmp_path: Path) -> None:
    samples, replication = ProgressTable(tmp_path, Channel.SAMPLES), ProgressTable(tmp_path, Channel.REPLICATION)
    samples.replace([row(1)], None)
    replication.replace([row(2)], None)
    samples.replace([row(3)], None)
    assert positions(tmp_path) == {"replication": [2], "samples": [3]}
    assert ProgressTable(tmp_path, Channel.SAMPLES).sources() == [row(3)[0]]
    assert [found["restarts"] for found in rows(tmp_path, "source_progress") if found["channel"] == "samples"] == [3]


def test_channels_written_at_once_by_several_jobs_lose_nothing(tmp_path: Path) -> None:
    def write(channel: Channel) -> None:
        table = ProgressTable(tmp_path, channel)
        for number in range(ROUNDS):
            table.replace([row(number)], number if channel is Channel.REPLICATION else None)

    with ThreadPoolExecutor() as threads:
        list(threads.map(write, Channel))
    assert positions(tmp_path) == {channel: [ROUNDS - 1] for channel in sorted(Channel)}
    assert ProgressTable(tmp_path, Channel.REPLICATION).as_of_version == ROUNDS - 1


def test_of_two_writers_of_one_channel_the_second_is_told(tmp_path: Path) -> None:
    first, second = ProgressTable(tmp_path, Channel.SAMPLES), ProgressTable(tmp_path, Channel.SAMPLES)
    first.replace([row(1)], None)
    first.replace([row(2)], None)
    with pytest.raises(TableRefused, match="another job writes the channel samples"):
        second.replace([row(9)], None)
    assert positions(tmp_path) == {"samples": [2]}


def test_a_writer_suspended_until_its_log_expired_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.delta.log.maintenance.COMMITS_BETWEEN_ROUNDS", 5)
    keep = RetentionPolicy(reader_minutes=0)
    suspended, busy = ProgressTable(tmp_path, Channel.SAMPLES, keep), ProgressTable(tmp_path, Channel.REPLICATION, keep)
    suspended.replace([row(1)], None)
    for number in range(30):
        busy.replace([row(number)], None)
    entries = tmp_path / "source_progress" / "_delta_log"
    assert not (entries / f"{1:020}.json").exists()
    suspended.replace([row(2)], None)
    busy.replace([row(30)], None)
    assert positions(tmp_path) == {"replication": [30], "samples": [2]}
