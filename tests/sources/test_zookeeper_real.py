"""Real clusters with ZooKeeper: they have no metadata log, and are polled for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.contracts.events import EventKind
from streaming.contracts.observations import SourceKind
from streaming.settings import ClusterSettings, CollectSettings, Settings
from tests.plugins.real_collector import Tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deploy.sandbox import Sandbox
    from tests.plugins.real_collector import Collecting

pytestmark = [pytest.mark.kafka, pytest.mark.long]
pytest_plugins = ["tests.plugins.real_collector"]
VERSIONS = ["3.9", "1.0"]
_OF_KRAFT = ["eligible leader replicas", "fenced brokers", "leader of the quorum"]
LOST = {"3.9": _OF_KRAFT, "1.0": ["leader epochs", *_OF_KRAFT, "reassignments", "ends of leader epochs"]}
"""What the doctor says that polling lacks."""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cluster_with_zookeeper_is_polled(
    kafka_cluster: Callable[..., Sandbox], collecting: Collecting, tmp_path: Path, version: str
) -> None:
    cluster = kafka_cluster(brokers=2, version=version, zookeeper=True, zookeeper_session_timeout_ms=2000)
    cluster.admin.create_topic("orders", assignment=[[1, 2], [2, 1]], configs={"min.insync.replicas": "2"})
    lines, tables = collecting.lines, Tables()
    settings = Settings(
        cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers),
        collect=CollectSettings(heartbeat_interval=1, poll_interval=0.5, config_interval=2),
    )
    ((status, versions),) = CHECKS["versions"](settings)
    assert (status, "a cluster with ZooKeeper" in versions) == (Status.OK, True)
    lost = [sentence for status, sentence in CHECKS["profile"](settings) if status is Status.WARNING]
    assert [sentence.partition(" (")[0].removeprefix("polling lacks ") for sentence in lost] == LOST[version]
    collecting.start(settings, tmp_path, tables)
    assert "with ZooKeeper, which has no metadata log" in lines[0]
    collecting.until(lambda: len(tables.partitions()) == 2, "the first report")
    collecting.until(lambda: all(each.min_isr_effective == 2 for each in tables.partitions().values()), "the minimum")
    assert tables.primary() == SourceKind.POLL
    assert (Status.OK, "replicas whose offsets can be read: 4") in list(CHECKS["samples"](settings))
    cluster.kill(1)
    collecting.until(lambda: all(1 not in each.isr for each in tables.partitions().values()), "broker 1 left")
    collecting.until(lambda: tables.partitions()["orders", 0].leader == 2, "another leader")
    cluster.start(1)
    collecting.until(lambda: all(len(each.isr) == 2 for each in tables.partitions().values()), "broker 1 came back")
    cluster.admin.delete_topic("orders")
    collecting.until(lambda: sum(tables.events(EventKind.TOPIC_DELETED).values()) == 2, "the deletion")
    collecting.stop()
    others = [line for line in lines[1:] if not line.startswith("broker 1 at ")]
    if version == "1.0":
        # A round has one limit of time, which a broker that was killed may use up on a busy machine.
        expected = ("brokers do not list reassignments before Kafka 2.4", "the groups of brokers that are older than")
        assert [sum(part in line for line in others) for part in expected] == [1, 1]
        of_busy = ("no broker answers", "reads the cluster again")
        others = [line for line in others if not any(part in line for part in (*expected, *of_busy))]
    assert others == []
    shrinks = tables.events(EventKind.ISR_SHRINK)
    assert shrinks == {(EventKind.ISR_SHRINK, "orders", number): 1 for number in (0, 1)}
    assert not tables.events(EventKind.PROTOCOL_VIOLATION, EventKind.UNCLEAN_ELECTION)
