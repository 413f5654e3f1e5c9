from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming.contracts.tables import PARTITION_CHANGES, QUARANTINE
from streaming.delta.definitions import arrow_schema, create_or_check
from streaming.delta.tail import BEFORE_FIRST, ChangeTail, TailGap, has_moved, rows_between

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = arrow_schema(PARTITION_CHANGES)
MOMENT = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


def rows(*topics: str, day: int = 0) -> pa.Table:
    when = MOMENT + dt.timedelta(days=day)
    told: dict[str, Any] = {
        "date": when.date(),
        "cluster_id": "id",
        "cluster": "main",
        "subject": "partition",
        "is_baseline": False,
        "occurred_not_before": when,
        "occurred_not_after": when,
        "collected_at": when,
        "source": "s",
        "left_isr": [1, 2],
        "after": {"replicas": [1, 2], "isr": [1], "leader": 1, "offline_since": when},
    }
    return pa.Table.from_pylist([{**told, "topic": topic} for topic in topics], schema=SCHEMA)


def topics(added: list[tuple[int, pa.Table]]) -> list[tuple[int, list[str]]]:
    return [(version, table.column("topic").to_pylist()) for version, table in added]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / PARTITION_CHANGES.name


@pytest.fixture
def table(path: Path) -> DeltaTable:
    return create_or_check(path.parent, PARTITION_CHANGES)


def test_a_table_that_does_not_exist_yet_has_no_rows_and_is_followed_once_it_does(path: Path) -> None:
    tail = ChangeTail(path)
    assert (tail.poll(), tail.version) == ([], BEFORE_FIRST)
    table = create_or_check(path.parent, PARTITION_CHANGES)
    assert (tail.poll(), tail.version) == ([], 0)
    write_deltalake(table, rows("a"), mode="append")
    assert topics(tail.poll()) == [(1, ["a"])]


def test_each_poll_gives_the_rows_of_the_versions_since_the_last_with_every_column(
    path: Path, table: DeltaTable
) -> None:
    tail = ChangeTail(path)
    write_deltalake(table, rows("a", "b"), mode="append")
    write_deltalake(table, rows("c"), mode="append")
    added = tail.poll()
    assert topics(added) == [(1, ["a", "b"]), (2, ["c"])]
    assert added[1][1].equals(rows("c"))
    assert (tail.poll(), tail.version) == ([], 2)


def test_rows_of_one_version_that_span_days_come_in_the_order_of_the_days(path: Path, table: DeltaTable) -> None:
    write_deltalake(table, pa.concat_tables([rows("a"), rows("z", day=-1)]), mode="append")
    assert topics(ChangeTail(path).poll()) == [(1, ["z", "a"])]


def test_compaction_and_metadata_move_the_version_and_add_no_rows(path: Path, table: DeltaTable) -> None:
    for topic in ("a", "b", "c"):
        write_deltalake(table, rows(topic), mode="append")
    tail = ChangeTail(path, 3)
    table.optimize.compact()
    table.alter.set_table_properties({"delta.checkpointInterval": "20"})
    assert (tail.poll(), tail.version) == ([], table.version())


def test_a_tail_that_starts_after_a_compaction_still_reads_the_files_from_before_it(
    path: Path, table: DeltaTable
) -> None:
    write_deltalake(table, rows("a"), mode="append")
    write_deltalake(table, rows("b"), mode="append")
    table.optimize.compact()
    assert topics(ChangeTail(path).poll()) == [(1, ["a"]), (2, ["b"])]


def test_a_vacuumed_file_is_a_gap_and_the_tail_stays_where_it_was(path: Path, table: DeltaTable) -> None:
    write_deltalake(table, rows("a"), mode="append")
    write_deltalake(table, rows("b"), mode="append")
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    tail = ChangeTail(path)
    with pytest.raises(TailGap, match="vacuumed"):
        tail.poll()
    assert tail.version == BEFORE_FIRST


def test_a_log_that_was_cleaned_beyond_the_tail_is_a_gap(path: Path, table: DeltaTable) -> None:
    for topic in ("a", "b", "c"):
        write_deltalake(table, rows(topic), mode="append")
    ahead, behind = ChangeTail(path, 3), ChangeTail(path, 1)
    table.create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    assert ahead.poll() == []
    with pytest.raises(TailGap, match="version 2"):
        behind.poll()
    with pytest.raises(TailGap, match="version 0"):
        ChangeTail(path).poll()


def test_a_table_that_was_made_anew_is_a_gap(path: Path, table: DeltaTable) -> None:
    write_deltalake(table, rows("a"), mode="append")
    tail = ChangeTail(path)
    tail.poll()
    path.rename(path.with_name("moved away"))
    anew = create_or_check(path.parent, PARTITION_CHANGES)
    with pytest.raises(TailGap):
        tail.poll()
    write_deltalake(anew, rows("b"), mode="append")
    with pytest.raises(TailGap):
        tail.poll()


def test_a_version_that_rewrote_rows_is_a_gap_because_new_and_old_ones_cannot_be_told_apart(tmp_path: Path) -> None:
    told = {"channel": "c", "source": "s", "reason": "r", "quarantined_at": MOMENT}
    schema = arrow_schema(QUARANTINE)
    path = tmp_path / "rewritten"
    before = pa.Table.from_pylist([{**told, "position": 1}], schema=schema)
    write_deltalake(str(path), before, mode="overwrite")
    write_deltalake(str(path), before, mode="overwrite")
    with pytest.raises(TailGap, match="version 1 rewrote rows"):
        ChangeTail(path, table=QUARANTINE).poll()


def test_rows_between_two_versions_are_one_table_in_order(path: Path, table: DeltaTable) -> None:
    for topic in ("a", "b", "c"):
        write_deltalake(table, rows(topic), mode="append")
    assert rows_between(path, 1, 3).column("topic").to_pylist() == ["b", "c"]
    assert rows_between(path, 3, 3).equals(SCHEMA.empty_table())


def test_rows_up_to_a_version_that_is_not_there_are_a_gap(path: Path, table: DeltaTable) -> None:
    write_deltalake(table, rows("a"), mode="append")
    with pytest.raises(TailGap, match="version 2"):
        rows_between(path, 0, 5)


def test_a_table_has_moved_when_it_has_a_newer_version_or_is_gone(path: Path, table: DeltaTable) -> None:
    assert has_moved(path, BEFORE_FIRST)
    assert not has_moved(path, 0)
    write_deltalake(table, rows("a"), mode="append")
    assert has_moved(path, 0)
    path.rename(path.with_name("moved away"))
    assert has_moved(path, 1)


def test_a_file_that_holds_its_partition_too_as_spark_writes_it_is_read_the_same(path: Path, table: DeltaTable) -> None:
    write_deltalake(table, rows("a", "b"), mode="append")
    expected = rows_between(path, 0, 1)
    (file,) = path.glob("date=*/*.parquet")
    pq.write_table(expected, file)

    assert rows_between(path, 0, 1) == expected
