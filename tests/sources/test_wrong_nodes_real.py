"""A real cluster of which two advertised addresses are crossed, and whose agents are partly wrong, shared and missing.

The brokers replicate by another listener, so the cluster itself is well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.sandbox import ReplicationProxy, Sandbox, plan_cluster
from deploy.sandbox.plan import VERSIONS
from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.contracts.observations import BrokerObserved, Observation
from streaming.contracts.samples import (
    BrokerMetricObserved,
    BrokerSpeedObserved,
    LogDirectoryObserved,
    ReplicaOffsetsObserved,
)
from streaming.contracts.settings import BrokerSettingsObserved
from streaming.settings import ClusterSettings, CollectSettings, ControllersSettings, Settings
from tests.blocks import singly
from tests.plugins.real_collector import Collecting, Tables

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(300)]
pytest_plugins = ["tests.plugins.real_collector"]
JMX = Path(__file__).parents[2] / "conf" / "jmx-exporter.yml"
OF_BROKERS = (LogDirectoryObserved, ReplicaOffsetsObserved, BrokerSpeedObserved, BrokerSettingsObserved)
PROTOCOLS = "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT,REPLICATION:PLAINTEXT,OUTSIDE:PLAINTEXT"


class Recorded(Tables):
    """What was published, too."""

    def __init__(self) -> None:
        super().__init__()
        self.published: list[Observation] = []

    def publish(self, observations: Sequence[Observation]) -> None:
        self.published += observations
        super().publish(observations)

    def brokers(self, kind: type[Any]) -> set[int]:
        return {each.broker for each in singly([*self.published]) if isinstance(each, kind)}


def outside(ports: Any) -> tuple[int, int]:
    """Return the port that a broker advertises for OUTSIDE, which is the proxy's, and the one where it listens."""
    return ports.metrics + 15, ports.metrics + 25


def listening(ports: Any) -> dict[str, str]:
    advertised, own = outside(ports)
    both = f"CLIENT://127.0.0.1:{ports.client},REPLICATION://127.0.0.1:{ports.replication}"
    return {
        "listeners": f"{both},OUTSIDE://127.0.0.1:{own}",
        "advertised.listeners": f"{both},OUTSIDE://127.0.0.1:{advertised}",
    }


@pytest.fixture(params=sorted(VERSIONS.keys() - {"1.0", "3.6"}))
def cluster(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    plan = plan_cluster(
        brokers=3,
        controllers=2,
        jmx_config=JMX,
        properties={"listener.security.protocol.map": PROTOCOLS},
        version=request.param,
    )
    of_each = {broker: listening(ports) for broker, ports in plan.brokers.items()}
    ports = {broker: outside(each) for broker, each in plan.brokers.items()}
    led_to = {1: 2, 2: 1, 3: 3}
    proxy = ReplicationProxy({broker: (ports[broker][0], ports[other][1]) for broker, other in led_to.items()})
    try:
        with Sandbox(replace(plan, node_properties=of_each)) as running:
            yield running
    finally:
        proxy.close()


def settings_of(cluster: Sandbox) -> Settings:
    servers = ",".join(f"127.0.0.1:{outside(ports)[0]}" for ports in cluster.plan.brokers.values())
    first, second = cluster.plan.controllers.values()
    return Settings(
        cluster=ClusterSettings(
            bootstrap_servers=servers,
            controllers=ControllersSettings(
                addresses={"101": f"127.0.0.1:{second.client}", "102": f"127.0.0.1:{first.client}"}
            ),
        ),
        collect=CollectSettings(
            collector="collector-1",
            heartbeat_interval=1,
            config_interval=1,
            offsets_interval=1,
            directories_interval=1,
            broker_metrics_interval=1,
            broker_metrics={"1": cluster.metrics_url(2), "2": cluster.metrics_url(2)},
        ),
    )


def test_of_crossed_addresses_and_shared_agents_each_is_named_and_nothing_is_booked_at_another_broker(
    cluster: Sandbox, collecting: Collecting, tmp_path: Path
) -> None:
    cluster.admin.create_topic("orders", assignment=[[1, 2, 3], [1, 3, 2], [1, 2, 3]])
    settings, tables = settings_of(cluster), Recorded()
    port = {broker: outside(ports)[0] for broker, ports in cluster.plan.brokers.items()}
    problems = [one for status, one in CHECKS["listeners"](settings) if status is Status.PROBLEM]
    for broker, other in ((1, 2), (2, 1)):
        assert any(f"broker {broker}, 127.0.0.1:{port[broker]}, leads to broker {other}, so" in one for one in problems)
    for node, other in ((101, 102), (102, 101)):
        assert any(f"address of controller {node}, " in one and f"to controller {other}, so" in one for one in problems)
    assert len(problems) == 4
    warnings = [one for status, one in CHECKS["broker metrics"](settings) if status is Status.WARNING]
    assert any("has no agent of broker 3" in one for one in warnings)
    assert any("the agent of broker 1 in" in one and "is that of broker 2" in one for one in warnings)

    collector = collecting.start(settings, tmp_path, tables)
    collecting.until(lambda: all(tables.brokers(kind) for kind in OF_BROKERS), "samples")
    collecting.until(lambda: tables.brokers(BrokerMetricObserved), "metrics of agents")
    for part in (
        f"the address of broker 1, 127.0.0.1:{port[1]}, leads to broker 2, so",
        f"the address of broker 2, 127.0.0.1:{port[2]}, leads to broker 1, so",
        "leads to controller 101, so",
        "leads to controller 102, so",
        "collect.broker_metrics has no agent of broker 3",
        "is that of broker 2, so nothing of it is recorded",
    ):
        collecting.until(lambda part=part: collecting.count(part) == 1, part)
    before = len(collecting.lines)
    cluster.pause(1)
    silent = f"broker 2 at 127.0.0.1:{port[2]}, where broker 1 has answered, does not respond"
    collecting.until(lambda: collecting.count(silent), "silence")
    assert not [line for line in collecting.lines[before:] if "broker 2" in line and "broker 1" not in line]
    cluster.resume(1)

    assert [tables.brokers(kind) for kind in OF_BROKERS] == [{3}] * 4
    assert tables.brokers(BrokerMetricObserved) == {2}
    seen = [each for each in singly([*tables.published]) if isinstance(each, BrokerObserved) and each.host is not None]
    assert {(each.broker, each.port) for each in seen} == set(port.items()), "the listener that is used"
    families = text_string_to_metric_families(generate_latest(collector.registry).decode())
    wrong = {
        sample.labels["node"]: sample.value
        for family in families
        if family.name == "isrwatch_collector_listener_wrong_node"
        for sample in family.samples
    }
    assert wrong == {"1": 1, "2": 1, "3": 0, "101": 1, "102": 1}
