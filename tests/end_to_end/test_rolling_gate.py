"""``isrwatch health --wait`` between the steps of a rolling restart of a real cluster, while somebody writes to it.

It must not pass while a broker is away, and when it passes every replica must be in sync: Kafka itself is asked. Each
gate alone is in ``test_real_cluster.py``; here the second begins where the first has just opened.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.sandbox import Sandbox, plan_cluster
from tests.plugins.batches import Batches
from tests.plugins.pipeline import Pipeline
from tests.topic_writer import TopicWriter

pytestmark = [pytest.mark.kafka, pytest.mark.long]

TOPIC, PARTITIONS = "orders", 12
HEALTHY = 0
CLOSED = {1, 3}  # unhealthy, or unknown while no data has come since
PROPERTIES = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "1000"}


class Cluster:
    """A real cluster, and what is recorded of it."""

    def __init__(self, sandbox: Sandbox, tables: Path) -> None:
        self.sandbox, self._tables = sandbox, tables

    def gate(self, wait: str, settle: str) -> subprocess.CompletedProcess[str]:
        """Wait at the gate, as a script does between two brokers."""
        command = [sys.executable, "-m", "streaming.commands", "health", "--tables", str(self._tables)]
        return subprocess.run(
            [*command, "--wait", wait, "--settle", settle], capture_output=True, text=True, check=False
        )

    def out_of_sync(self) -> list[int]:
        """Name the partitions of which a replica is out of sync, as the brokers say."""
        described = self.sandbox.admin.describe(TOPIC)
        return [number for (_, number), each in described.items() if set(each.isr) != set(each.replicas)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox(plan_cluster(brokers=3, properties=PROPERTIES)))
        sandbox.admin.create_topic(
            TOPIC, partitions=PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"}
        )
        pipeline = Pipeline(tmp_path_factory.mktemp("pipeline"))
        stack.callback(pipeline.close)
        config = pipeline.directory / "isrwatch.toml"
        config.write_text(
            f'[cluster]\nname = "sandbox"\nbootstrap_servers = "{sandbox.bootstrap_servers}"\n'
            '[collect]\nheartbeat_interval = "1s"\n'  # a gate that opens waits for two of them
        )
        pipeline.collect("--config", str(config))
        pipeline.eventually(lambda: list(pipeline.bus.glob("replication/*")), "there are reports")
        batches = Batches(pipeline.bus, pipeline.tables)
        batches.start()
        stack.callback(batches.end)
        stack.enter_context(TopicWriter(sandbox.bootstrap_servers, TOPIC))
        yield Cluster(sandbox, pipeline.tables)
        assert batches.errors == []


def test_the_gate_passes_between_two_brokers_only_when_kafka_says_that_all_replicas_are_in_sync(
    cluster: Cluster,
) -> None:
    first = cluster.gate("120s", "1s")
    assert first.returncode == HEALTHY, first.stdout + first.stderr
    # A broker that was killed stays in sync until its session ends, after 6 s, or a few more on a busy machine.
    for broker, end, wait, settle in ((1, cluster.sandbox.stop, "4s", "1s"), (2, cluster.sandbox.kill, "14s", "13s")):
        end(broker)
        closed = cluster.gate(wait, settle)
        assert closed.returncode in CLOSED, closed.stdout + closed.stderr
        assert f"broker {broker}" in closed.stdout
        cluster.sandbox.start(broker)
        opened = cluster.gate("120s", "1s")
        assert opened.returncode == HEALTHY, opened.stdout + opened.stderr
        assert cluster.out_of_sync() == []
