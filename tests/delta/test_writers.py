"""Several jobs on one folder of tables: who may write what, and what happens to whoever comes second."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from streaming.contracts.observations import Channel
from streaming.contracts.tables import SOURCE_PROGRESS
from streaming.delta.log import writer
from streaming.delta.log.definitions import create_or_upgrade
from streaming.errors import TableRefused
from streaming.jobs.driver.samples import NewestBatch
from tests.jobs.driver.test_batch import offsets_sample, published, rows

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


def sample(position: int) -> pa.Table:
    return published([offsets_sample(position)], start=position)


def test_the_second_writer_of_a_table_of_samples_stops_and_writes_nothing(tmp_path: Path) -> None:
    first, second = NewestBatch(tmp_path, Channel.OFFSETS), NewestBatch(tmp_path, Channel.OFFSETS)
    first.apply(sample(1))
    with pytest.raises(TableRefused, match=r"another job writes .*replica_offsets"):
        second.apply(sample(2))
    assert [row["high_watermark"] for row in rows(tmp_path, "replica_offsets")] == [1]
    first.check_ours()


def test_a_sample_writer_that_was_followed_by_another_one_must_not_open_again(tmp_path: Path) -> None:
    first = NewestBatch(tmp_path, Channel.OFFSETS)
    first.apply(sample(1))
    NewestBatch(tmp_path, Channel.OFFSETS).apply(sample(2))
    with pytest.raises(TableRefused, match="another job writes"):
        first.check_ours()


def test_a_table_that_several_jobs_make_at_once_is_made_once(tmp_path: Path) -> None:
    together = Barrier(4)

    def make(directory: Path) -> int:
        together.wait()
        return create_or_upgrade(directory, SOURCE_PROGRESS).version()

    for number in range(10):
        with ThreadPoolExecutor(together.parties) as threads:
            versions = list(threads.map(make, [tmp_path / str(number)] * together.parties))
        assert versions == [0] * together.parties


@pytest.mark.parametrize("error", [DeltaError("cannot write a checkpoint"), OSError(28, "No space left on device")])
def test_a_commit_whose_error_came_late_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def committed_and_failed(*arguments: Any, **options: Any) -> None:
        write_deltalake(DeltaTable(str(tmp_path / "a table" / "replica_offsets")), *arguments[1:], **options)
        raise error

    batch = NewestBatch(tmp_path / "a table", Channel.OFFSETS)
    with monkeypatch.context() as failing:
        failing.setattr(writer, "write_deltalake", committed_and_failed)
        batch.apply(sample(1))
    batch.apply(sample(2))

    assert [row["high_watermark"] for row in rows(tmp_path / "a table", "replica_offsets")] == [2]


def test_a_commit_that_failed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_arguments: Any, **_options: Any) -> None:
        raise DeltaError("no disk")

    batch = NewestBatch(tmp_path, Channel.OFFSETS)
    batch.apply(sample(1))
    monkeypatch.setattr(writer, "write_deltalake", failed)
    with pytest.raises(DeltaError, match="no disk"):
        batch.apply(sample(2))
    assert [row["high_watermark"] for row in rows(tmp_path, "replica_offsets")] == [1]
