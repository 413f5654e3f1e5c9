"""The incidents query: it writes what the fold alone gives, and continues after a stop."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from deploy.sandbox.waiting import wait_until
from streaming.changes.incidents.grouping import IncidentGaps
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.log.queries import read_all
from streaming.jobs.application import QUERIES
from streaming.jobs.incidents import ChangesRun
from streaming.jobs.queries import JobLocations
from streaming.settings import JobSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from streaming.jobs.queries import BatchResult

pytest_plugins = ["tests.plugins.played"]

SCENARIOS = ("broker_loss", "rolling_restart")
# Racks, and who follows whom: a start of the query reads them, because its own table has no place for them.
CONTEXT = ("partition_state", "broker_state", "cluster_state")


def rows(directory: Path) -> list[dict[str, Any]]:
    if not DeltaTable.is_deltatable(str(directory / INCIDENTS.name)):
        return []
    found = read_all(DeltaTable(str(directory / INCIDENTS.name))).to_pylist()
    return sorted(({**row, "as_of_version": None} for row in found), key=lambda row: str(row["incident_id"]))


def test_the_query_writes_what_the_fold_gives_and_a_stop_between_changes_nothing(
    played_tables: Callable[..., Path], tmp_path: Path
) -> None:
    whole = played_tables(*SCENARIOS, seconds=90)
    pure = tmp_path / "pure"
    pure.mkdir()
    for name in (PARTITION_CHANGES.name, *CONTEXT):
        (pure / name).symlink_to(whole / name)
    IncidentsTable(pure, IncidentGaps()).apply(ChangeReader(pure / PARTITION_CHANGES.name).poll())
    places = JobLocations(bus=tmp_path / "bus", tables=tmp_path / "tables", checkpoint=tmp_path / "checkpoint")
    half = copied(whole, places.tables, up_to=0.5)
    for name in CONTEXT:
        (places.tables / name).symlink_to(whole / name)
    run_until(places, half)
    shutil.rmtree(places.tables / PARTITION_CHANGES.name)
    copied(whole, places.tables, up_to=1)
    run(places, trigger_seconds=3600.0).stop()  # a stop looks once more

    assert rows(places.tables) == rows(pure)
    assert {row["incident_class"] for row in rows(pure)} == set(SCENARIOS)


def copied(whole: Path, tables: Path, up_to: float) -> int:
    """Copy the truth with a part of its versions; give the last one."""
    shutil.copytree(whole / PARTITION_CHANGES.name, tables / PARTITION_CHANGES.name)
    log = tables / PARTITION_CHANGES.name / "_delta_log"
    versions = sorted(log.glob("*.json"))
    last = round((len(versions) - 1) * up_to)
    for entry in versions[last + 1 :]:
        entry.unlink()
    for checkpoint in (*log.glob("*.parquet"), *log.glob("_last_checkpoint")):
        checkpoint.unlink()
    return last


def run(places: JobLocations, trigger_seconds: float, applied: list[int] | None = None) -> ChangesRun:
    opened = QUERIES["incidents"].open(places, JobSettings())

    def note(_query: str, result: BatchResult, _stages: Mapping[str, float]) -> None:
        if applied is not None:
            applied.append(result.version)

    path = places.tables / PARTITION_CHANGES.name
    return ChangesRun("incidents", path, opened.after, opened.batch, note, trigger_seconds=trigger_seconds)


def run_until(places: JobLocations, version: int) -> None:
    """Run the query until it has applied a version, and stop it."""
    applied: list[int] = []
    running = run(places, 0.01, applied)
    try:
        wait_until(lambda: running.failure() or (applied and applied[-1] >= version), f"version {version} is applied")
        assert running.failure() is None
    finally:
        running.stop()
