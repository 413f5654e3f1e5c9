"""A new column that may be null needs a higher layout and nothing else, in a table and within a state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming.contracts.columns import Column, Table
from streaming.contracts.tables import PARTITION_CHANGES, PARTITION_STATE_TABLE
from streaming.delta import change_reader
from streaming.delta.change_reader import ChangeReader
from streaming.delta.definitions import arrow_schema, check_layout
from streaming.delta.layouts import create_or_upgrade
from streaming.delta.queries import select
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from pathlib import Path

NEW = Column("is_new", "boolean", "a column of tomorrow")


def with_new_columns(table: Table) -> Table:
    """The definition of tomorrow: a column in the middle, and a field at the end of every partition state."""
    columns = [
        replace(column, type=(*column.type, NEW)) if column.name in {"before", "after"} else column
        for column in table.columns
    ]
    return replace(table, layout=table.layout + 1, columns=(*columns[:-1], NEW, columns[-1]))


def row(table: Table) -> dict[str, Any]:
    """One row with a value in every column that must have one."""
    values = {"string": "partition", "long": 1, "int": 1, "boolean": False, "timestamp": 0, "date": 0}
    filled = {column.name: values[str(column.type)] for column in table.columns if not column.nullable}
    return filled | ({"after": {"leader": 3}} if "after" in table.column_names() else {})


def append(path: Path, table: Table, **columns: Any) -> None:
    write_deltalake(
        DeltaTable(str(path)), pa.Table.from_pylist([row(table) | columns], arrow_schema(table)), mode="append"
    )


@pytest.mark.parametrize("today", [PARTITION_CHANGES, PARTITION_STATE_TABLE], ids=lambda table: table.name)
def test_a_higher_layout_adds_columns_and_fields_and_rows_from_before_have_null_there(
    today: Table, tmp_path: Path
) -> None:
    tomorrow = with_new_columns(today)
    create_or_upgrade(tmp_path, today)
    append(tmp_path / today.name, today)

    with pytest.raises(TableRefused, match="start isrwatch job of this version once"):
        check_layout(DeltaTable(str(tmp_path / today.name)), tomorrow)
    upgraded = create_or_upgrade(tmp_path, tomorrow)
    append(tmp_path / today.name, tomorrow, is_new=True)

    check_layout(upgraded, tomorrow)
    rows = select(DeltaTable(str(tmp_path / today.name)), tomorrow)
    assert sorted(rows["is_new"].to_pylist(), key=str) == [None, True]


def test_whoever_follows_the_changes_reads_those_from_before_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tomorrow = with_new_columns(PARTITION_CHANGES)
    create_or_upgrade(tmp_path, PARTITION_CHANGES)
    append(tmp_path / PARTITION_CHANGES.name, PARTITION_CHANGES, version=1)
    create_or_upgrade(tmp_path, tomorrow)
    version = DeltaTable(str(tmp_path / PARTITION_CHANGES.name)).version() + 1
    append(
        tmp_path / PARTITION_CHANGES.name, tomorrow, version=version, is_new=True, after={"leader": 3, "is_new": True}
    )

    monkeypatch.setattr(change_reader, "PARTITION_CHANGES", tomorrow)
    monkeypatch.setattr(change_reader, "_SCHEMA", arrow_schema(tomorrow))
    added = pa.concat_tables([rows for _, rows in ChangeReader(tmp_path / PARTITION_CHANGES.name).poll()])

    assert added["is_new"].to_pylist() == [None, True]
    assert [after["is_new"] for after in added["after"].to_pylist()] == [None, True]
    assert [after["leader"] for after in added["after"].to_pylist()] == [3, 3]
