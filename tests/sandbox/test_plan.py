"""The plan of a sandbox cluster: its ports."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from deploy.sandbox import plan
from deploy.sandbox.plan import Plan, plan_cluster
from streaming.errors import ConfigurationError


def ports_of(planned: Plan) -> list[int]:
    of_brokers = [
        port
        for ports in planned.brokers.values()
        for port in (ports.client, ports.replication, ports.advertised_replication, ports.metrics)
    ]
    return of_brokers + [ports.client for ports in planned.controllers.values()]


def test_no_two_nodes_of_a_plan_share_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PORTS", range(15_000, 15_400))
    for _ in range(50):
        ports = ports_of(plan_cluster(brokers=6, controllers=3, proxy=True))
        assert len(set(ports)) == len(ports) == 27


def test_a_plan_keeps_away_from_the_ports_of_a_cluster_whose_nodes_are_partly_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "PORTS", range(15_000, 15_400))
    running = ports_of(plan_cluster(proxy=True))
    with socket.socket() as alive:
        alive.bind((plan.HOST, running[0]))
        for _ in range(50):
            assert not set(ports_of(plan_cluster(proxy=True))) & set(running)


def test_a_combined_node_is_a_broker_and_a_voter(tmp_path: Path) -> None:
    planned = plan_cluster(brokers=4, controllers=3, proxy=True, combined=True)
    roles = {node: planned.properties_of(node, tmp_path)["process.roles"] for node in planned.ports()}
    assert roles == {1: "broker,controller", 2: "broker,controller", 3: "broker,controller", 4: "broker"}
    properties = planned.properties_of(1, tmp_path)
    names = [listener.partition(":")[0] for listener in properties["listeners"].split(",")]
    assert names == ["CLIENT", "REPLICATION", "CONTROLLER"]
    assert "CONTROLLER" not in properties["advertised.listeners"]
    assert len(set(ports_of(planned))) == len(ports_of(planned))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"version": "2.0"}, "there is no Kafka 2.0 for the sandbox; there are 4.4, 4.3, 3.9, 3.6, 1.0"),
        ({"zookeeper": True}, "Kafka 4.3 has no ZooKeeper: add --version 3.9"),
        ({"version": "4.4", "zookeeper": True}, "Kafka 4.4 has no ZooKeeper: add --version 3.9"),
        ({"version": "1.0"}, "Kafka 1.0 needs a ZooKeeper: add --zookeeper"),
    ],
)
def test_a_version_that_does_not_exist_in_this_way_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(sentence)):
        plan_cluster(**settings)


def test_nodes_may_have_addresses_of_their_own() -> None:
    planned = plan_cluster(brokers=2, hosts={1: "10.99.1.2", 101: "10.99.101.2"})
    of_broker = planned.properties_of(1, Path("data"))
    assert of_broker["listeners"].startswith("CLIENT://10.99.1.2:")
    assert of_broker["advertised.listeners"].count("10.99.1.2") == 2
    assert of_broker["controller.quorum.voters"].startswith("101@10.99.101.2:")
    assert planned.properties_of(2, Path("data"))["listeners"].startswith(f"CLIENT://{plan.HOST}:")
