"""A job that is submitted to a Spark cluster from another folder reads the bus of Kafka, with the connector's jars."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming.runtime.jars import SPARK_KAFKA, jar_paths
from tests.end_to_end.test_kafka_bus import KafkaPipeline
from tests.plugins.kafka_bus import bus_settings
from tests.plugins.sandbox import MakeSandbox

if TYPE_CHECKING:
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
