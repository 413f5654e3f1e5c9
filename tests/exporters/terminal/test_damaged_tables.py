"""A damaged table: every command, and the job at its start, say in one sentence which table cannot be read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import Refresher
from streaming.commands import app
from streaming.contracts.tables import PARTITION_CHANGES, PARTITION_STATE_TABLE, REPLICATION_EVENTS
from streaming.errors import TableUnreadable
from streaming.jobs.driver.batch import ReplicationBatch
from tests.plugins.old_layout import unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COMMANDS = {
    PARTITION_STATE_TABLE.name: ["state"],
    REPLICATION_EVENTS.name: ["events"],
    PARTITION_CHANGES.name: ["state", "--as-of", "30"],
}


def with_damaged_log(table: Path) -> None:
    max((table / "_delta_log").glob("*.json")).write_text("{")


def with_damaged_files(table: Path) -> None:
    for file in table.rglob("*.parquet"):
        file.write_text("PAR1")


def with_missing_files(table: Path) -> None:
    for file in table.rglob("part*.parquet"):
        file.unlink()


@pytest.fixture(params=[with_damaged_log, with_damaged_files, with_missing_files])
def damage(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    made: Callable[[Path], None] = request.param
    return made


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """The tables of a job that was stopped."""
    unpack(tmp_path, settled=True)
    job = ReplicationBatch(tmp_path / "tables")
    job.projections.project(job.shared)
    return tmp_path / "tables"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_names_the_damaged_table_in_one_sentence(
    tables: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(tables / name)
    done: Any = CliRunner().invoke(app, [*COMMANDS[name], "--tables", str(tables)])
    assert done.exit_code == 1
    assert done.stderr.startswith("cannot read the table ")
    assert f"tables/{name}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_other_tables_are_measured_beside_a_damaged_one(tables: Path) -> None:
    with_damaged_log(tables / PARTITION_STATE_TABLE.name)
    done: Any = CliRunner().invoke(app, ["tables", "--format", "json", "--tables", str(tables)])
    measured = {row["table"]: row["version"] for row in map(json.loads, done.stdout.splitlines())}
    assert (measured[PARTITION_STATE_TABLE.name], done.exit_code) == (None, 1)
    assert measured[PARTITION_CHANGES.name] is not None
    assert done.stderr.startswith("cannot read the table ")
    assert PARTITION_STATE_TABLE.name in done.stderr


def test_the_job_does_not_start_on_a_damaged_table(tables: Path, damage: Callable[[Path], None]) -> None:
    damage(tables / PARTITION_STATE_TABLE.name)
    with pytest.raises(TableUnreadable, match=f"cannot read the table .*{PARTITION_STATE_TABLE.name}"):
        ReplicationBatch(tables)


def test_the_exporter_reports_a_damaged_table_and_goes_on_looking(tables: Path, damage: Callable[[Path], None]) -> None:
    damage(tables / PARTITION_STATE_TABLE.name)
    refresher = Refresher(TablesReader(tables), 0.01, "1.2.3")
    for errors in (1, 2):
        refresher.refresh_once()
        assert refresher.health.refresh_errors == errors
        assert (refresher.last_error or "").startswith("TableUnreadable: cannot read the table ")
    assert refresher.snapshot.clusters == {}
