"""Spark with Delta's own extension next to a job that writes: it reads every table, and can change none.

What delta-rs may not write: ``tests/delta/test_other_writers.py``.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streaming.bus.directory import DirectoryReader
from streaming.contracts.observations import Channel
from streaming.contracts.tables import TABLES
from streaming.delta.log.definitions import WRITER_FEATURE
from tests.chaos.comparison import all_differences, undisturbed
from tests.exporters.terminal.test_sql import sorted_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.plugins.pipeline import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.long]
WRITTEN = ("partition_changes", "replica_offsets")
"""Tables that the job appends to, and that it writes whole, all the time."""
REFUSED = (
    "OPTIMIZE {table}",  # first, of the table that has files to merge
    "VACUUM {table}",
    "VACUUM {table} RETAIN 0 HOURS",
    "DELETE FROM {table}",
    "DELETE FROM {table} WHERE cluster = 'demo'",
    "UPDATE {table} SET cluster = 'mine'",
    "INSERT INTO {table} SELECT * FROM {table}",
    "INSERT OVERWRITE {table} SELECT * FROM {table} WHERE false",
    "MERGE INTO {table} t USING {table} s ON t.cluster = s.cluster WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE {table}",
    "RESTORE TABLE {table} TO VERSION AS OF 1",
    "ALTER TABLE {table} ADD COLUMNS (mine INT)",
    "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "ALTER TABLE {table} SET TBLPROPERTIES ('delta.feature.isrwatch' = 'supported')",
    "ALTER TABLE {table} DROP FEATURE isrwatch",
    "ALTER TABLE {table} CLUSTER BY (cluster)",
    "CREATE OR REPLACE TABLE {table} (a INT) USING delta",
)
HARMLESS = (
    "DESCRIBE HISTORY {table}",
    "DESCRIBE DETAIL {table}",
    "REORG TABLE {table} APPLY (PURGE)",
    "GENERATE symlink_format_manifest FOR TABLE {table}",
    "DROP TABLE {table}",
)
PATIENCE = 400.0
FOR_OTHER_REASONS = frozenset({"ALTER TABLE", "DELETE FROM"})
"""What Delta refuses before it looks at the features of a table: no row of one that is append-only is deleted."""


@pytest.fixture
def catalog(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A database for the tables, which is forgotten afterwards; the tables stay."""
    spark.sql(f"CREATE DATABASE isrwatch LOCATION '{tmp_path / 'warehouse'}'")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    yield spark
    spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    spark.sql("DROP DATABASE isrwatch CASCADE")


def register(spark: SparkSession, tables: Path, name: str) -> str:
    """Register a table as docs/querying.md does."""
    spark.sql(f"CREATE TABLE IF NOT EXISTS isrwatch.{name} USING delta LOCATION '{tables / name}'")
    return f"isrwatch.{name}"


def refusal(spark: SparkSession, statement: str) -> str:
    """Give why a statement was refused; empty if it was not."""
    try:
        spark.sql(statement).collect()
    except Exception as refused:  # noqa: BLE001 - Java's, Spark's and Delta's classes of errors
        return str(refused)
    return ""


def is_applied(pipeline: Pipeline) -> bool:
    """Return whether the job has applied, and reported, everything on the bus."""
    bus = DirectoryReader(pipeline.bus)
    ends = {(channel, source): end for channel in Channel for source, end in bus.end_positions(channel).items()}
    told = pipeline.rows("source_progress")
    return ends == {(row["channel"], row["source"]): row["bus_end"] for row in told} and not any(
        row["behind_bytes"] for row in told
    )


@pytest.mark.timeout(1200)  # a core that others use, too
def test_other_writers_are_refused_while_the_job_writes_and_spark_reads_what_delta_rs_reads(
    pipeline: Pipeline, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    collector = pipeline.collect("--simulate", "broker_loss", "--speed", "2")
    job = pipeline.start("job", "job", *pipeline.job_arguments())
    catalog: SparkSession = request.getfixturevalue("catalog")  # while the job starts
    pipeline.eventually(lambda: all(pipeline.rows(name) for name in WRITTEN), "the job writes", job, PATIENCE)
    tables = [register(catalog, pipeline.tables, name) for name in WRITTEN]
    in_turn = [(each, table) for each, table in zip(REFUSED, cycle(tables), strict=False)]
    both = [(each, table) for each in REFUSED if each.startswith("VACUUM") for table in tables]
    statements = [each.format(table=table) for each, table in dict.fromkeys([*both, *in_turn])]
    reasons = {text: refusal(catalog, text) for text in statements}
    assert [text for text, reason in reasons.items() if not reason] == []
    others = {text: reason[:300] for text, reason in reasons.items() if f": {WRITER_FEATURE}" not in reason}
    assert {text.split(" isrwatch")[0] for text in others} <= FOR_OTHER_REASONS, others
    for statement in HARMLESS:
        catalog.sql(statement.format(table=tables[0])).collect()
    before = len(pipeline.rows("partition_changes"))
    pipeline.eventually(lambda: len(pipeline.rows("partition_changes")) > before, "the job writes on", job, PATIENCE)
    assert collector.stop() == 0, collector.text()
    pipeline.eventually(lambda: is_applied(pipeline), "everything is applied", job, PATIENCE)
    assert job.stop() == 0, job.text()
    assert "another job" not in job.text()
    assert "failed" not in job.text()

    undisturbed(pipeline.bus, tmp_path / "expected")
    assert [*all_differences(pipeline.tables, tmp_path / "expected")] == []
    assert [*differing(catalog, pipeline)] == []


def differing(spark: SparkSession, pipeline: Pipeline) -> Iterator[str]:
    """Name the tables that Spark SQL and delta-rs do not read alike."""
    filled = 0
    for name in TABLES:
        if not (pipeline.tables / name).exists():
            continue
        table = register(spark, pipeline.tables, name)
        by_spark: list[dict[str, Any]] = [row.asDict() for row in spark.sql(f"SELECT * FROM {table}").collect()]  # noqa: S608 - our own names
        by_deltars = pipeline.rows(name)
        filled += bool(by_deltars)
        if sorted_rows(by_spark) != sorted_rows(by_deltars):
            yield name
    assert filled > 10, "most tables have rows"
