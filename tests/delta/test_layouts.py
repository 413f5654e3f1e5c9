"""Tables that a job opens: new ones, those of this layout, and those that lack a column that may be null; no others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming.contracts.columns import Column, Table, required
from streaming.contracts.tables import PARTITION_CHANGES, PARTITION_STATE_TABLE, TABLES
from streaming.delta.changes import reader
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log import definitions
from streaming.delta.log.definitions import LAYOUT_PROPERTY, arrow_schema, check_layout, create_or_upgrade, layout_of
from streaming.delta.log.queries import read_all, select
from streaming.delta.store import objects
from streaming.errors import TableRefused
from tests.plugins.table_writes import set_properties, write

NEW = Column("is_new", "boolean", "a column of tomorrow")
SMALL = Table(
    name="small",
    comment="A table of the tests",
    columns=(required("cluster", "string", "a name"), Column("partition", "int", "a number")),
    key=("cluster",),
)
LARGER = replace(SMALL, columns=(*SMALL.columns, Column("rack", "string", "added later")))


def with_new_columns(table: Table) -> Table:
    """The definition of tomorrow: a column in the middle, and a field at the end of every partition state."""
    columns = [
        replace(column, type=(*column.type, NEW)) if column.name in {"before", "after"} else column
        for column in table.columns
    ]
    return replace(table, columns=(*columns[:-1], NEW, columns[-1]))


def row(table: Table) -> dict[str, Any]:
    """One row with a value in every column that must have one."""
    values = {"string": "partition", "long": 1, "int": 1, "boolean": False, "timestamp": 0, "date": 0}
    filled = {column.name: values[str(column.type)] for column in table.columns if not column.nullable}
    return filled | ({"after": {"leader": 3}} if "after" in table.column_names() else {})


def append(path: Path, table: Table, **columns: Any) -> None:
    write(DeltaTable(str(path)), pa.Table.from_pylist([row(table) | columns], arrow_schema(table)))


def set_layout(path: Path, layout: int | str) -> int:
    """Let a table say another layout; return its version."""
    return set_properties(DeltaTable(str(path)), {LAYOUT_PROPERTY: str(layout)})


def test_every_layout_is_the_first() -> None:
    assert {table.layout for table in TABLES.values()} == {1}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_newer_layout_is_refused_with_one_sentence_and_left_alone(tmp_path: Path, table: Table) -> None:
    create_or_upgrade(tmp_path, table)
    version = set_layout(tmp_path / table.name, table.layout + 1)
    with pytest.raises(TableRefused) as refused:
        create_or_upgrade(tmp_path, table)
    opened = DeltaTable(str(tmp_path / table.name))
    assert str(refused.value) == (
        f"{opened.table_uri} was written by a newer isrwatch "
        f"(layout {table.layout + 1}, this program reads {table.layout}); upgrade isrwatch"
    )
    assert (opened.version(), layout_of(opened)) == (version, table.layout + 1)


def test_a_table_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / PARTITION_CHANGES.name
    write_deltalake(str(path), pa.table({"cluster": ["main"]}))
    with pytest.raises(TableRefused, match=r"is not a table of isrwatch; point tables.directory at another folder"):
        create_or_upgrade(tmp_path, PARTITION_CHANGES)
    assert DeltaTable(str(path)).version() == 0


@pytest.mark.parametrize(
    "columns",
    [
        (SMALL.columns[0], Column("partition", "long", "wider")),
        (SMALL.columns[0], required("partition", "int", "every row has it")),
        (SMALL.columns[0], Column("partition", "int[]", "several")),
        (*SMALL.columns, required("rack", "string", "every row has it")),
        (Column("partition", "long", "wider"), NEW),
    ],
    ids=["type", "nullable", "list", "required", "new and type"],
)
def test_columns_of_another_table_are_refused_and_left_alone(tmp_path: Path, columns: tuple[Column, ...]) -> None:
    version = create_or_upgrade(tmp_path, SMALL).version()
    with pytest.raises(TableRefused, match=r"the columns of .* are not those of isrwatch's small"):
        create_or_upgrade(tmp_path, replace(SMALL, columns=columns))
    assert DeltaTable(str(tmp_path / "small")).version() == version


@pytest.mark.parametrize("today", [PARTITION_CHANGES, PARTITION_STATE_TABLE], ids=lambda table: table.name)
def test_the_job_adds_new_columns_and_fields_and_rows_from_before_have_null_there(today: Table, tmp_path: Path) -> None:
    tomorrow = with_new_columns(today)
    create_or_upgrade(tmp_path, today)
    append(tmp_path / today.name, today)

    with pytest.raises(TableRefused, match=r"lacks .*is_new.*; start isrwatch job of this version once: it adds new"):
        check_layout(DeltaTable(str(tmp_path / today.name)), tomorrow)
    added = create_or_upgrade(tmp_path, tomorrow)
    append(tmp_path / today.name, tomorrow, is_new=True)

    check_layout(added, tomorrow)
    assert layout_of(added) == today.layout
    rows = select(DeltaTable(str(tmp_path / today.name)), tomorrow)
    assert sorted(rows["is_new"].to_pylist(), key=str) == [None, True]
    version = DeltaTable(str(tmp_path / today.name)).version()
    assert create_or_upgrade(tmp_path, tomorrow).version() == version, "there is nothing left to do"


def test_a_start_whose_own_try_has_added_the_columns_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to it was lost, so the client repeated the request, and found the name taken."""
    create_or_upgrade(tmp_path, SMALL)
    monkeypatch.setattr(definitions, "create", lambda *entry: objects.create(*entry) and objects.create(*entry))
    assert create_or_upgrade(tmp_path, LARGER).version() == 1


def played_by_two_versions(tmp_path: Path) -> Table:
    """Write a change, add columns, and write a change that has them; return the definition with these."""
    tomorrow = with_new_columns(PARTITION_CHANGES)
    create_or_upgrade(tmp_path, PARTITION_CHANGES)
    append(tmp_path / PARTITION_CHANGES.name, PARTITION_CHANGES, version=1)
    create_or_upgrade(tmp_path, tomorrow)
    version = DeltaTable(str(tmp_path / PARTITION_CHANGES.name)).version() + 1
    append(
        tmp_path / PARTITION_CHANGES.name, tomorrow, version=version, is_new=True, after={"leader": 3, "is_new": True}
    )
    return tomorrow


def test_a_follower_reads_changes_from_before_the_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tomorrow = played_by_two_versions(tmp_path)
    monkeypatch.setattr(reader, "PARTITION_CHANGES", tomorrow)
    monkeypatch.setattr(reader, "SCHEMA", arrow_schema(tomorrow))
    added = pa.concat_tables([rows for _, rows in ChangeReader(tmp_path / PARTITION_CHANGES.name).poll()])
    assert added["is_new"].to_pylist() == [None, True]
    assert [after["is_new"] for after in added["after"].to_pylist()] == [None, True]
    assert [after["leader"] for after in added["after"].to_pylist()] == [3, 3]


def test_a_reader_that_does_not_know_the_columns_goes_on_without_them(tmp_path: Path) -> None:
    played_by_two_versions(tmp_path)
    added = pa.concat_tables([rows for _, rows in ChangeReader(tmp_path / PARTITION_CHANGES.name).poll()])
    rows = select(DeltaTable(str(tmp_path / PARTITION_CHANGES.name)), PARTITION_CHANGES)
    assert added.schema == rows.schema == arrow_schema(PARTITION_CHANGES)
    assert [after["leader"] for after in [*added["after"].to_pylist(), *rows["after"].to_pylist()]] == [3, 3, 3, 3]


def test_a_job_that_does_not_know_the_columns_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    version = create_or_upgrade(tmp_path, LARGER).version()
    with pytest.raises(TableRefused, match=r"written by a newer isrwatch \(this program does not know rack\); upgrade"):
        create_or_upgrade(tmp_path, SMALL)
    assert DeltaTable(str(tmp_path / "small")).version() == version


def test_of_several_starts_at_once_one_adds_the_columns_and_the_others_are_refused_or_find_them(tmp_path: Path) -> None:
    together = Barrier(4)

    def start(directory: Path) -> str:
        together.wait()
        try:
            return f"version {create_or_upgrade(directory, LARGER).version()}"
        except TableRefused as refused:
            return "refused" if "while columns are added" in str(refused) else str(refused)

    for number in range(8):
        directory = tmp_path / str(number)
        create_or_upgrade(directory, SMALL)
        append(directory / "small", SMALL)
        with ThreadPoolExecutor(together.parties) as threads:
            outcomes = set(threads.map(start, [directory] * together.parties))

        table = DeltaTable(str(directory / "small"))
        assert outcomes <= {"version 2", "refused"}
        assert "version 2" in outcomes
        check_layout(table, LARGER)
        assert [field.name for field in table.schema().fields] == list(LARGER.column_names())
        assert read_all(table).num_rows == 1
