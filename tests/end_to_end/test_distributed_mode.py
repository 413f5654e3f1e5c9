"""The job on a real Spark cluster, a master and two workers: the same tables, by code that only the package brings."""

from __future__ import annotations

import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Channel
from streaming.contracts.state import SOURCE_STATE, SourceLag
from streaming.delta.progress import ProgressTable
from streaming.jobs.driver.batch import ReplicationBatch
from streaming.jobs.driver.newest import NewestBatch
from streaming.jobs.streams.bus_rows import SCHEMA
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.plugins.logs import rows_of_log
from tests.plugins.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.plugins.pipeline import Program
    from tests.plugins.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2400)]
MAIN = Path(__file__).parents[2] / "deploy" / "spark" / "main.py"
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
SCENARIOS = ("broker_loss", "topic_recreated", "rolling_restart")
# When and in which commit; and each of the two buses has logs of its own.
UNEQUAL = {"as_of_version", "quarantined_at", "version", "ordinal", "committed_at", "log_id"}
DERIVED = (
    "replication_events", "partition_state", "broker_state", "cluster_state", "source_progress", "quarantine",
    "replica_offsets", "groups", "group_offsets", "log_directories", "quorum_members", "transactions", "broker_metrics",
    "topic_settings", "broker_settings", "broker_speed",
)  # fmt: skip


class PublishedScenarios:
    """Scenarios as clusters of one bus, published part by part, with a record now and then that nobody understands.

    Everything stands on a second bus, too: of the first one the job deletes what it has applied.
    """

    def __init__(self, *buses: Path) -> None:
        self._publishers = [DirectoryPublisher(bus, segment_bytes=200_000) for bus in buses]
        self._published = 0
        self._sources = [
            SimulatedSource(
                load_scenario(name), seed=7 + number, cluster_id=ClusterId(f"id-of-{name}"), cluster=name,
                name=f"metadata_log:{name}", epoch=Micros(START),
            )
            for number, name in enumerate(SCENARIOS)
        ]  # fmt: skip

    def publish(self, seconds: int) -> None:
        for publisher in self._publishers:
            publisher.publish_raw(Channel.REPLICATION, f"metadata_log:{SCENARIOS[0]}", b'{"v":1,"kind":"dream"}')
        for second in range(self._published, self._published + seconds):
            for source in self._sources:
                seen = source.poll(Micros(START + second * SECOND))
                for publisher in self._publishers:
                    publisher.publish(seen)
        self._published += seconds

    def close(self) -> None:
        for publisher in self._publishers:
            publisher.close()


class Submitted:
    """Start the job in one execution mode or the other."""

    def __init__(self, pipeline: Pipeline, spark_cluster: SparkCluster, package: Path) -> None:
        self.pipeline, self._spark, self._package = pipeline, spark_cluster, package
        self.kept = pipeline.directory / "kept"
        self.configuration = pipeline.directory / "distributed.toml"
        self.configuration.write_text('[job]\nexecution = "distributed"\nbuckets = 4\n')

    def start(self, mode: str) -> Program:
        if mode == "driver":
            return self.pipeline.job()
        command = [*self._spark.submit_arguments(self._package), str(MAIN), "--config", str(self.configuration)]
        return self.pipeline.run("submitted", [*command, *self.pipeline.job_arguments()], **self._spark.environment())

    def through(self, mode: str) -> None:
        """Run until every table says what the whole bus says; then kill."""
        program = self.start(mode)
        alone = in_one_process(self.kept, self.pipeline.directory / f"alone-{time.monotonic_ns()}")
        expected = {table: comparable_rows(alone, table) for table in ("partition_changes", *DERIVED)}
        self.pipeline.eventually(
            lambda: all(comparable_rows(self.pipeline.tables, table) == expected[table] for table in DERIVED),
            f"the mode {mode} has written everything",
            program,
            900,
        )
        for table, rows in expected.items():
            assert comparable_rows(self.pipeline.tables, table) == rows, table
        program.kill()


def in_one_process(bus: Path, tables: Path) -> Path:
    """Apply a whole bus in the driver, without Spark."""
    reader = DirectoryReader(bus)
    replication = ReplicationBatch(tables)
    batches: dict[Channel, Any] = {Channel.REPLICATION: replication}
    batches |= {channel: NewestBatch(tables, channel) for channel in (Channel.OFFSETS, Channel.METRICS)}
    for channel, batch in batches.items():
        pieces = [piece for source in reader.end_positions(channel) for piece in rows_of_log(reader, channel, source)]
        batch.apply(pa.Table.from_batches(pieces) if pieces else SCHEMA.empty_table())
    replication.projections.project(replication.shared)
    states, version = replication.sources()
    ProgressTable(tables, Channel.REPLICATION).replace([(state, SourceLag()) for state in states], version)
    return tables


def comparable_rows(tables: Path, table: str) -> list[str]:
    path = tables / table
    if not DeltaTable.is_deltatable(str(path)):
        return []
    query = QueryBuilder().register("t", DeltaTable(str(path))).execute("select * from t")
    rows = [row for row in pa.table(query).to_pylist() if row.get("subject") != "source"]
    if table == "source_progress":  # what follows says how the job is, and of samples how it was cut into batches
        columns = ("cluster_id", "source", *(column.name for column in SOURCE_STATE))
        rows = [{name: row[name] for name in columns} for row in rows if row["channel"] == Channel.REPLICATION]
    return sorted(repr({name: row[name] for name in sorted(row) if name not in UNEQUAL}) for row in rows)


@pytest.fixture
def submitted(tmp_path: Path, spark_cluster: SparkCluster, package: Path) -> Iterator[Submitted]:
    pipeline = Pipeline(tmp_path)
    try:
        yield Submitted(pipeline, spark_cluster, package)
    finally:
        pipeline.close()


def test_the_machines_of_the_cluster_have_no_isrwatch_of_their_own(spark_cluster: SparkCluster) -> None:
    found = subprocess.run(
        [spark_cluster.python, "-c", "import pyspark, deltalake, pyarrow; import streaming.jobs"],
        capture_output=True, text=True, check=False, cwd="/", env=spark_cluster.environment(),
    )  # fmt: skip

    assert "No module named 'streaming" in found.stderr


def test_every_table_is_that_of_one_process_whichever_mode_runs_and_when_it_is_killed(submitted: Submitted) -> None:
    commits = submitted.pipeline.tables / "partition_changes" / "_delta_log"
    with closing(PublishedScenarios(submitted.pipeline.bus, submitted.kept)) as story:
        story.publish(30)
        killed = submitted.start("distributed")
        submitted.pipeline.eventually(lambda: len(list(commits.glob("*.json"))) > 1, "it commits", killed, 600)
        killed.kill()
        story.publish(15)
        submitted.through("distributed")
        story.publish(15)
        submitted.through("driver")
