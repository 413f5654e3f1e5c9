"""Other engines read the tables, and cannot write them: the protocol requires a feature of writers that only we have.

The same with Spark: ``tests/end_to_end/test_other_writers.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from streaming.contracts.tables import PARTITION_CHANGES, PARTITION_STATE_TABLE, TABLES
from streaming.delta.log.definitions import WRITER_FEATURE, arrow_schema, create_or_upgrade, properties_of
from streaming.delta.log.queries import read_all
from streaming.delta.log.writer import Writer
from tests.delta.written_changes import commit, rows
from tests.plugins.table_writes import merge_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.columns import Table

REFUSAL = rf'Unsupported table features required: \[Unknown\("{WRITER_FEATURE}"\)\]|Delta table is append-only'
WRITES: dict[str, Callable[[DeltaTable], object]] = {
    "append": lambda table: write_deltalake(table, rows(9, "x"), mode="append"),
    "overwrite": lambda table: write_deltalake(table, rows(9, "x"), mode="overwrite"),
    "delete": lambda table: table.delete("topic = 'd'"),
    "update": lambda table: table.update({"topic": "'b'"}),
    "compact": lambda table: table.optimize.compact(),
    "order": lambda table: table.optimize.z_order(["topic"]),
    "vacuum": lambda table: table.vacuum(0, enforce_retention_duration=False, dry_run=False),
    "restore": lambda table: table.restore(1),
    "property": lambda table: table.alter.set_table_properties({"delta.appendOnly": "false"}),
}


def files(path: Path) -> set[Path]:
    return {file for file in path.rglob("*") if file.is_file()}


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """A table with files that could be merged, and others that only older versions need."""
    made = create_or_upgrade(tmp_path, PARTITION_CHANGES)
    for topic in "abc":
        commit(made, topic)
    merge_files(made)
    commit(made, "d")
    return made


@pytest.mark.parametrize("write", WRITES)
def test_what_another_engine_would_write_is_refused_and_nothing_is_changed(
    table: DeltaTable, write: str, tmp_path: Path
) -> None:
    path = tmp_path / PARTITION_CHANGES.name
    before, there = read_all(table), {file for file in files(path) if file.suffix == ".json"}
    kept = files(path)
    with pytest.raises(DeltaError, match=REFUSAL):
        WRITES[write](table)
    assert {file for file in files(path) if file.suffix == ".json"} == there
    assert kept <= files(path), "no file was deleted"
    assert read_all(DeltaTable(str(path))) == before


@pytest.mark.parametrize("definition", TABLES.values(), ids=TABLES)
def test_every_table_can_be_read_by_all_and_written_by_us_alone(tmp_path: Path, definition: Table) -> None:
    protocol = create_or_upgrade(tmp_path, definition).protocol()
    assert (protocol.min_reader_version, protocol.reader_features) == (1, None)
    assert WRITER_FEATURE in (protocol.writer_features or ())


def test_the_job_closes_a_table_that_others_could_write_before(tmp_path: Path) -> None:
    path = tmp_path / PARTITION_STATE_TABLE.name
    open_to_all = DeltaTable.create(
        str(path),
        schema=arrow_schema(PARTITION_STATE_TABLE),
        name=PARTITION_STATE_TABLE.name,
        configuration={**properties_of(PARTITION_STATE_TABLE)},
        raise_if_key_not_exists=False,
    )
    assert open_to_all.protocol().writer_features is None
    closed = create_or_upgrade(tmp_path, PARTITION_STATE_TABLE)
    assert WRITER_FEATURE in (closed.protocol().writer_features or ())
    assert (closed.schema(), closed.metadata()) == (open_to_all.schema(), open_to_all.metadata())
    assert create_or_upgrade(tmp_path, PARTITION_STATE_TABLE).version() == 1, "there is nothing left to do"
    assert Writer(closed, path).write(arrow_schema(PARTITION_STATE_TABLE).empty_table(), "append", {}) == 2
