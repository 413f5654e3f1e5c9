"""A damaged table: every command, and the job at its start, say in one sentence which table cannot be read."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streaming.commands import app
from streaming.errors import TableUnreadable
from streaming.jobs.shards.batch import ReplicationBatch
from tests.exporters.damages import data_gone, data_torn


def with_damaged_log(table: Path) -> None:
    """Damage the newest entry, and take away the checkpoint that may hold the same."""
    newest = max((table / "_delta_log").glob("*.json"))
    newest.write_text("{")
    newest.with_suffix(".checkpoint.parquet").unlink(missing_ok=True)
    (table / "_delta_log" / "_last_checkpoint").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def stopped(played_tables: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a job that was stopped."""
    directory = tmp_path_factory.mktemp("stopped") / "tables"
    shutil.copytree(played_tables("under_min_isr", "broker_loss"), directory)
    job = ReplicationBatch(directory)
    job.project()
    return directory


@pytest.fixture
def tables(stopped: Path, tmp_path: Path) -> Path:
    """A copy of them to damage."""
    return shutil.copytree(stopped, tmp_path / "tables")


ANY_DAMAGE = pytest.mark.parametrize(
    "damage", [with_damaged_log, *(pytest.param(each, marks=pytest.mark.long) for each in (data_torn, data_gone))]
)


@ANY_DAMAGE
def test_a_state_of_the_past_needs_the_changes(tables: Path, damage: Callable[[Path], None]) -> None:
    damage(tables / "partition_changes")
    done = run("state", "--as-of", "20", tables=tables)
    assert done.exit_code == 1
    assert done.stderr.startswith("cannot read the table ")
    assert done.stderr.count("\n") == 1


def test_the_other_tables_are_measured_beside_a_damaged_one(tables: Path) -> None:
    with_damaged_log(tables / "partition_state")
    done = run("tables", "-o", "json", tables=tables)
    measured = {row["table"]: row["version"] for row in json.loads(done.stdout)["rows"]}
    assert (measured["partition_state"], done.exit_code) == (None, 1)
    assert measured["partition_changes"] is not None
    assert done.stderr.startswith("cannot read the table ")
    assert "partition_state" in done.stderr


@ANY_DAMAGE
def test_the_job_does_not_start_on_a_damaged_table(tables: Path, damage: Callable[[Path], None]) -> None:
    damage(tables / "partition_state")
    with pytest.raises(TableUnreadable, match=r"cannot read the table .*partition_state"):
        ReplicationBatch(tables)


def run(*arguments: str, tables: Path) -> Any:
    return CliRunner().invoke(app, [*arguments, "--tables", str(tables)])


@pytest.mark.parametrize(
    ("command", "name", "damage"),
    [
        pytest.param(["partitions", "--all"], "partition_state", with_damaged_log, marks=pytest.mark.long),
        pytest.param(["partitions", "--all"], "broker_state", data_torn, marks=pytest.mark.long),
        (["partitions", "--all"], "partition_changes", data_gone),
        (["brokers"], "broker_state", with_damaged_log),
        (["partitions", "--as-of", "20", "--all"], "broker_state", data_gone),
        (["events"], "replication_events", data_torn),
    ],
)
def test_a_command_shows_what_the_other_tables_hold_and_then_names_the_damaged_one(
    tables: Path, command: list[str], name: str, damage: Callable[[Path], None]
) -> None:
    whole = run(*command, tables=tables)
    assert whole.exit_code == 0, whole.stderr
    assert whole.stdout
    damage(tables / name)
    done = run(*command, tables=tables)
    assert (done.exit_code, done.stderr.count("cannot read the table ")) == (1, 1), done.stderr
    assert name in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    # Without the table of brokers, what only the job derives is missing; all else is in the change log.
    if "brokers" not in command:
        assert done.stdout.splitlines() == whole.stdout.splitlines()
    else:
        assert len(done.stdout.splitlines()) == len(whole.stdout.splitlines())


def test_recorded_events_are_shown_while_the_log_of_the_changes_is_damaged(tables: Path) -> None:
    whole = run("events", tables=tables)
    with_damaged_log(tables / "partition_changes")
    done = run("events", tables=tables)
    assert (done.exit_code, done.stdout) == (1, whole.stdout)
    assert done.stderr.startswith("cannot read the table ")


def test_the_launcher_of_spark_submit_names_a_damaged_table_in_one_sentence(tables: Path, tmp_path: Path) -> None:
    data_torn(tables / "partition_state")
    launcher = Path(__file__).parents[3] / "deploy" / "spark" / "main.py"
    command = [sys.executable, launcher, "--tables", tables, "--bus", tmp_path / "bus", "--checkpoint", tmp_path / "c"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("cannot read the table ")
    assert "partition_state" in last
    assert "Traceback" not in done.stderr
