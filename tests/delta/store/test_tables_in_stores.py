"""Tables are the same wherever they lie: what the job writes, what readers see, what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from exporters.read_model.reader import TablesReader
from streaming.commands import app
from streaming.contracts.tables import TABLES
from streaming.delta.changes.log import ChangeLog
from streaming.delta.changes.reader import rows_between
from streaming.delta.log.queries import open_ours, read_all
from streaming.delta.log.table_log import actions_of, is_whole
from streaming.delta.store.objects import names_below, put
from streaming.delta.store.place import Place, Url
from streaming.errors import TableRefused
from tests.delta.test_change_log import changed
from tests.plugins.played import play

pytestmark = pytest.mark.process
SCENARIO, SECONDS = "under_min_isr", 12
OF_THE_CLOCK = {"committed_at", "quarantined_at", "applied_at", "updated_at"}


def rows_of(place: Place) -> dict[str, list[str]]:
    """Every row of every table, but for the times of our own clock."""
    tables = {name: open_ours(place, definition) for name, definition in TABLES.items()}
    return {
        name: sorted(
            repr({key: row[key] for key in row if key not in OF_THE_CLOCK}) for row in read_all(table).to_pylist()
        )
        for name, table in tables.items()
        if table is not None
    }


def seen(place: Place) -> list[Any]:
    clusters = TablesReader(place).refresh().clusters.values()
    return [(each.cluster, each.totals, each.brokers, each.departures, each.sources) for each in clusters]


def test_the_job_writes_and_readers_see_what_they_do_in_a_folder(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    for where in (folder, place):
        play(where, SCENARIO, seconds=SECONDS, project_every=3)
    assert rows_of(place) == rows_of(folder)
    assert seen(place) == seen(folder) != []
    before = open_ours(folder, TABLES["partition_changes"]), open_ours(place, TABLES["partition_changes"])
    assert before[0] is not None
    assert before[1] is not None
    assert before[0].version() == before[1].version()


def test_a_command_reads_tables_by_their_url(root: Place, tmp_path: Path) -> None:
    place = root / "commands"
    play(place, SCENARIO, seconds=SECONDS)
    config = tmp_path / "isrwatch.toml"
    options = place.options if isinstance(place, Url) else ()
    lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in options]
    config.write_text("\n".join([f'[tables]\ndirectory = "{place}"', "[tables.storage]", *lines]))
    for command in (["state"], ["events"], ["tables"]):
        done = CliRunner().invoke(app, [*command, "--config", str(config), "--format", "json"])
        assert done.exit_code == 0, done.output
        assert done.stdout.strip() not in {"", "[]"}


@pytest.mark.parametrize("point", ["file", "draft", "after"])
def test_a_writer_killed_at_any_step_leaves_a_version_whole_or_none(place: Place, point: str) -> None:
    if point == "draft" and isinstance(place, Url) and not place.text.startswith("hdfs"):
        point = "file"  # an object of such a store has its name from the beginning, and is whole
    options = dict(place.options) if isinstance(place, Url) else {}
    script = Path(__file__).with_name("killed_writer.py")
    done = subprocess.run(
        [sys.executable, script, str(place), point, "3"],
        check=False,
        capture_output=True,
        env={**os.environ, "OPTIONS": json.dumps(options), "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    path, versions = place / "partition_changes", 3 if point == "after" else 2
    log = ChangeLog(place)
    assert (log.version, log.position("a")) == (versions, versions)
    assert actions_of(path, versions + 1) == []
    assert all(is_whole(path, version) for version in range(1, versions + 1))
    _, rows = changed()
    assert log.commit(rows, {"a": 4}) == versions + 1
    assert rows_between(path, -1, versions + 1).num_rows == (versions + 1) * rows.num_rows


def test_of_two_jobs_the_one_that_comes_second_stops(place: Place) -> None:
    _, rows = changed()
    first, second = ChangeLog(place), ChangeLog(place)
    first.commit(rows, {"a": 1})
    with pytest.raises(TableRefused, match="another job writes"):
        second.commit(rows, {"a": 1})
    assert rows_between(place / "partition_changes", -1, 1).num_rows == rows.num_rows


def test_files_without_a_commit_are_swept_in_time(place: Place) -> None:
    ChangeLog(place)
    path = place / "partition_changes"
    put(path / "date=2026-11-28" / "part-of-nothing.parquet", b"")
    assert "date=2026-11-28/part-of-nothing.parquet" in names_below(path)
