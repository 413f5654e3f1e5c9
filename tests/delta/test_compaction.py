"""Compaction commits at exactly the version after the one that was read: a writer that lost a race doubles no row."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.log import HEARTBEATS, ChangeLog
from streaming.delta.changes.reader import ChangeReader, rows_between
from streaming.delta.log.maintenance import AppendMaintenance, RetentionPolicy, compact
from streaming.delta.log.queries import query, read_all
from streaming.delta.log.writer import Writer
from streaming.errors import TableRefused
from tests.delta.test_change_log import changed
from tests.delta.test_maintenance import data_files

LARGE = 1 << 30


def compacting(path: Path) -> AppendMaintenance:
    return AppendMaintenance(
        Writer.opened(path.parent, PARTITION_CHANGES), lambda *_: None, RetentionPolicy(reader_minutes=0)
    )


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    log, (_, rows) = ChangeLog(tmp_path), changed()
    for _ in range(6):
        log.commit(rows, {"a": log.version})
    return log


def content(path: Path) -> list[str]:
    return sorted(map(repr, read_all(DeltaTable(str(path))).to_pylist()))


def test_small_files_become_one_per_day_with_the_same_rows_and_statistics(log: ChangeLog, tmp_path: Path) -> None:
    path = tmp_path / PARTITION_CHANGES.name
    before, writer = content(path), Writer.opened(tmp_path, PARTITION_CHANGES)
    follower = ChangeReader(path)
    follower.poll()

    compact(writer, LARGE)

    table = DeltaTable(str(path))
    assert table.version() == log.version + 1
    assert content(path) == before
    days = set(query(table, "SELECT DISTINCT date FROM rows")["date"].to_pylist())
    files = table.get_add_actions(flatten=True)
    assert len(files["path"]) == len(days)
    assert files["min.version"].to_pylist() == [1] * len(days)
    assert files["max.version"].to_pylist() == [log.version] * len(days)
    assert follower.poll() == [], "compaction adds no row"
    assert rows_between(path, 3, log.version).num_rows == 3 * changed()[1].num_rows

    compact(writer, LARGE)
    assert writer.version == log.version + 1, "there is nothing left to merge"


def test_rows_that_say_only_that_a_source_lives_get_files_of_their_own(log: ChangeLog, tmp_path: Path) -> None:
    path = tmp_path / PARTITION_CHANGES.name
    before, writer = content(path), Writer.opened(tmp_path, PARTITION_CHANGES)
    compact(writer, LARGE, HEARTBEATS)
    assert content(path) == before
    files = pa.table(DeltaTable(str(path)).get_add_actions(flatten=True)).to_pylist()
    kinds = sorted(HEARTBEATS.kind_of(file) for file in files)
    assert kinds == ["none", "only"]
    assert [row for _, rows in ChangeReader(path).poll() for row in rows["subject"].to_pylist()] == 6 * [
        row["subject"] for row in changed()[1].to_pylist()
    ]

    log = ChangeLog(tmp_path)
    log.commit(changed()[1], {"a": log.version})
    log.commit(changed()[1], {"a": log.version})
    writer = Writer.opened(tmp_path, PARTITION_CHANGES)
    for expected in (["none", "none", "only", "only"], ["none", "only"]):  # what was split is merged with its like
        compact(writer, LARGE, HEARTBEATS)
        files = pa.table(DeltaTable(str(path)).get_add_actions(flatten=True)).to_pylist()
        assert sorted(HEARTBEATS.kind_of(file) for file in files) == expected
    version = writer.version
    compact(writer, LARGE, HEARTBEATS)
    assert writer.version == version, "there is nothing left to merge"


@pytest.mark.parametrize("first", ["a compaction", "a commit"])
def test_a_compaction_that_comes_second_doubles_no_row(log: ChangeLog, tmp_path: Path, first: str) -> None:
    path = tmp_path / PARTITION_CHANGES.name
    late = Writer.opened(tmp_path, PARTITION_CHANGES)
    if first == "a commit":
        log.commit(changed()[1], {"a": log.version})
    else:
        compact(Writer.opened(tmp_path, PARTITION_CHANGES), LARGE)
    before = content(path)
    with pytest.raises(TableRefused, match="another job writes"):
        compact(late, LARGE)
    assert content(path) == before
    assert len(before) == (7 if first == "a commit" else 6) * changed()[1].num_rows


def test_files_of_a_compaction_that_was_not_committed_are_swept(log: ChangeLog, tmp_path: Path) -> None:
    path = tmp_path / PARTITION_CHANGES.name
    late = Writer.opened(tmp_path, PARTITION_CHANGES)
    log.commit(changed()[1], {"a": log.version})
    with pytest.raises(TableRefused):
        compact(late, LARGE)
    needed = len(data_files(path))
    keeper = compacting(path)
    keeper.sweep(time.time())
    keeper.sweep(time.time())
    assert len(data_files(path)) < needed
    assert read_all(DeltaTable(str(path))).num_rows == 7 * changed()[1].num_rows
