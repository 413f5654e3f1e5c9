"""The incidents query in Spark: it writes what the fold alone gives, and goes on after a stop."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from streaming.changes.incidents.grouping import IncidentGaps
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.log.queries import read_all
from streaming.jobs.application import QUERIES, register_sources
from streaming.jobs.driver.incidents import IncidentsBatch
from streaming.jobs.queries import JobLocations
from streaming.jobs.supervised import SupervisedQuery
from streaming.settings import JobSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytest_plugins = ["tests.plugins.played"]
pytestmark = [pytest.mark.spark]

SCENARIOS = ("broker_loss", "rolling_restart")
PATIENCE = 120.0
# Racks, and who follows whom: a start of the query reads them, because its own table has no place for them.
CONTEXT = ("partition_state", "broker_state", "cluster_state")


def rows(directory: Path) -> list[dict[str, Any]]:
    if not DeltaTable.is_deltatable(str(directory / INCIDENTS.name)):
        return []
    found = read_all(DeltaTable(str(directory / INCIDENTS.name))).to_pylist()
    return sorted(({**row, "as_of_version": None} for row in found), key=lambda row: str(row["incident_id"]))


def test_the_query_writes_what_the_fold_gives_and_a_stop_between_changes_nothing(
    spark: SparkSession, played_tables: Callable[..., Path], tmp_path: Path
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
    register_sources(spark)

    run_until(spark, places, half)
    shutil.rmtree(places.tables / PARTITION_CHANGES.name)
    run_until(spark, places, copied(whole, places.tables, up_to=1))

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


def run_until(spark: SparkSession, places: JobLocations, version: int) -> None:
    """Run the query until the offset of its last committed batch is a version, and stop it."""
    query = SupervisedQuery("incidents", QUERIES["incidents"], JobSettings(), places, print)
    query.start(spark)
    try:
        deadline = time.monotonic() + PATIENCE
        while not isinstance(query.batch, IncidentsBatch) or query.batch.version < version:
            query.check(spark)
            assert not query.is_lost, query.last_error
            assert time.monotonic() < deadline, f"waited in vain for version {version}: {query.last_error}"
            time.sleep(0.1)
    finally:
        query.stop()
