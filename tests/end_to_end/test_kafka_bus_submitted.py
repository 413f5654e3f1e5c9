"""A job that is submitted to a Spark cluster from another folder: the bus is Kafka, and the executors fold.

Every table equals that of one driver, although an executor, a worker and the driver are killed on the way.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from streaming.contracts.tables import PARTITION_STATE_TABLE
from streaming.delta.state import as_of_version
from streaming.runtime.jars import SPARK_KAFKA, jar_paths
from streaming.settings import KafkaBusSettings
from tests.chaos.comparison import all_differences, undisturbed
from tests.end_to_end.test_kafka_bus import KafkaPipeline
from tests.plugins.kafka_bus import bus_settings
from tests.plugins.pipeline import Program
from tests.plugins.sandbox import MakeSandbox
from tests.plugins.spark_cluster import SparkCluster

pytest_plugins = ("tests.plugins.spark_cluster",)
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.long]
MAIN = Path(__file__).parents[2] / "deploy" / "spark" / "main.py"


def test_it_applies_with_the_jars_and_says_what_is_missing_without_them(
    tmp_path: Path, spark_cluster: SparkCluster, package: Path, kafka_cluster: MakeSandbox
) -> None:
    pipeline = KafkaPipeline(tmp_path, bus_settings(kafka_cluster(brokers=1).bootstrap_servers))
    plain, environment = spark_cluster.submit_arguments(package), spark_cluster.environment()
    jars = ",".join(map(str, jar_paths(SPARK_KAFKA)))
    try:
        collector = pipeline.simulate("--speed", "20")
        without = pipeline.run("without", [*plain, str(MAIN), *pipeline.job_arguments()], cwd=Path("/"), **environment)
        assert without.wait() != 0
        assert "Spark has no connector to Kafka, which bus.kafka needs: add --packages" in without.text()
        command = [*plain, "--jars", jars, str(MAIN), *pipeline.job_arguments()]
        job = pipeline.run("submitted", command, cwd=Path("/"), **environment)
        pipeline.eventually(lambda: pipeline.rows("partition_changes"), "the submitted job applies", job)
        assert collector.stop() == 0, collector.text()
        pipeline.eventually(pipeline.is_applied, "everything is applied", job)
    finally:
        pipeline.close()


@pytest.fixture
def three_workers(tmp_path: Path, bare_python: Path) -> Iterator[SparkCluster]:
    made = SparkCluster(tmp_path / "spark", bare_python, workers=3, cores=1)
    made.directory.mkdir()
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_executors_fold_whole_clusters_and_tables_are_those_of_one_driver_whatever_is_killed(
    tmp_path: Path, three_workers: SparkCluster, package: Path, kafka_cluster: MakeSandbox
) -> None:
    brokers = kafka_cluster(brokers=1).bootstrap_servers
    settings = bus_settings(brokers, replication_partitions=3)
    sites = [site(tmp_path, number, settings) for number in range(4)]
    tables = sites[0]
    jars = ",".join(map(str, jar_paths(SPARK_KAFKA)))
    command = [*three_workers.submit_arguments(package), "--jars", jars, str(MAIN), *tables.job_arguments()]

    def submit() -> Program:
        return tables.run("submitted", command, cwd=Path("/"), **three_workers.environment())

    def rows() -> int:
        return len(tables.rows("partition_changes"))

    try:
        collectors = [each.simulate("--speed", "20", "--seed", str(number)) for number, each in enumerate(sites)]
        job = submit()
        tables.eventually(lambda: rows() > 100, "the executors fold", job)
        for harm in (three_workers.executors()[0], three_workers.workers[0].pid):
            before = rows()
            os.kill(harm, signal.SIGKILL)
            tables.eventually(lambda before=before: rows() > before + 50, "they fold again", job)
        job.kill()
        job = submit()
        for each in collectors:
            assert each.stop() == 0, each.text()
        for each in sites:
            tables.eventually(lambda each=each: is_applied(each, tables), "everything is applied", job)
        job.kill()  # with the last round of the derived tables missing: one driver goes on where the executors were
        job = tables.job()
        tables.eventually(lambda: derived_upto(tables) >= version_of(tables), "the derived tables", job)
        assert job.stop() == 0, job.text()[-3000:]
        kept = tmp_path / "kept"
        for each in sites:
            shutil.copytree(each.bus, kept, dirs_exist_ok=True)
        undisturbed(kept, tmp_path / "expected")
        assert [*all_differences(tables.tables, tmp_path / "expected")] == []
    finally:
        for each in sites:
            each.close()


def site(folder: Path, number: int, settings: KafkaBusSettings) -> KafkaPipeline:
    """Give a collector of its own cluster, which ships to the same bus."""
    place = folder / f"site-{number}"
    place.mkdir()
    made = KafkaPipeline(place, settings)
    text = made.config.read_text().replace('collector = "collector-1"', f'collector = "site-{number}"')
    made.config.write_text(f'{text}[cluster]\nname = "prod-{number}"\n')
    return made


def is_applied(site: KafkaPipeline, tables: KafkaPipeline) -> bool:
    """Return whether the tables have the last record of each log of a site."""
    return all(
        tables.applied(channel, source) >= position for (channel, source), position in site.last_positions().items()
    )


def version_of(pipeline: KafkaPipeline) -> int:
    return max(row["version"] for row in pipeline.rows("partition_changes") if row["subject"] != "source")


def derived_upto(pipeline: KafkaPipeline) -> int:
    return as_of_version(DeltaTable(str(pipeline.tables / PARTITION_STATE_TABLE.name)))
