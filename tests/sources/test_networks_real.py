"""A real cluster whose sessions end, that hangs up on who is idle, throttles its monitor, and replicates over TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.sandbox import Sandbox, plan_cluster
from streaming.commands.doctor import CHECKS
from streaming.contracts.observations import Observation
from streaming.contracts.sample_blocks import BrokerSpeedsObserved
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.collector.collector import Collector
from tests.blocks import speeds_of
from tests.plugins.real_collector import READER, USERS, Collecting, Tables
from tests.sources.test_tls_real import Authority

SESSION_SECONDS = 5
WATCHED_SECONDS = 40
LOGINS = {
    f"listener.name.{name}.{key}": value
    for name in ("controller", "secure")
    for key, value in {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "plain.sasl.jaas.config": USERS,
        "scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    }.items()
}
pytestmark = [pytest.mark.kafka, pytest.mark.long]
pytest_plugins = ["tests.plugins.real_collector"]


class Sampled(Tables):
    """What is published, and the rounds of response times among it."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = list[dict[Any, Any]]()

    def publish(self, observations: Any) -> None:
        of_speed: list[Observation] = [each for each in observations if isinstance(each, BrokerSpeedsObserved)]
        self.rounds += [speeds_of(each) for each in of_speed]  # type: ignore[arg-type]
        super().publish([each for each in observations if each not in of_speed])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Sandbox]:
    """Three brokers and a controller that ask for logins; the brokers replicate over TLS, and nobody else uses that."""
    ours = Authority(tmp_path, "ours")
    ours.sign("server")
    stored = tmp_path / "server-all.pem"
    stored.write_text((tmp_path / "server.key").read_text() + (tmp_path / "server.pem").read_text())
    protocols = "CONTROLLER:SASL_PLAINTEXT,CLIENT:PLAINTEXT,REPLICATION:SSL,SECURE:SASL_PLAINTEXT"
    plan = plan_cluster(
        brokers=3,
        properties=LOGINS
        | {
            "listener.security.protocol.map": protocols, "sasl.mechanism.controller.protocol": "PLAIN",
            "ssl.keystore.type": "PEM", "ssl.keystore.location": str(stored), "ssl.client.auth": "required",
            "ssl.truststore.type": "PEM", "ssl.truststore.location": str(ours.pem),
            "connections.max.reauth.ms": str(SESSION_SECONDS * 1_000), "connections.max.idle.ms": "4000",
        },
    )  # fmt: skip

    def listeners(ports: Any) -> dict[str, str]:
        client, secure = f"CLIENT://127.0.0.1:{ports.client}", f"SECURE://127.0.0.1:{ports.metrics}"
        every = f"{client},REPLICATION://127.0.0.1:{ports.replication},{secure}"
        return {"listeners": every, "advertised.listeners": every}

    with Sandbox(
        replace(plan, node_properties={broker: listeners(ports) for broker, ports in plan.brokers.items()})
    ) as it:
        yield it


def settings_of(cluster: Sandbox, primary_source: str, client: dict[str, str]) -> Settings:
    servers = ",".join(f"127.0.0.1:{ports.metrics}" for ports in cluster.plan.brokers.values())
    return Settings(
        cluster=ClusterSettings(bootstrap_servers=servers, client=client),
        collect=CollectSettings(
            collector="collector-1", primary_source=primary_source, heartbeat_interval=1, poll_interval=1,
            config_interval=4, offsets_interval=2, directories_interval=6, groups_interval=6,
        ),
    )  # fmt: skip


def metrics(collector: Collector, name: str) -> list[tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(generate_latest(collector.registry).decode())
    samples = (each for family in families for each in family.samples)
    return [(each.labels, each.value) for each in samples if each.name == f"isrwatch_collector_{name}"]


@pytest.mark.timeout(600)
def test_sessions_end_nodes_hang_up_and_quotas_mute_and_only_what_is_true_is_said(
    cluster: Sandbox, collecting: Collecting, tmp_path: Path
) -> None:
    cluster.admin.create_topic("orders", partitions=60, replication_factor=2)
    for name in ("log", "poll"):
        (tmp_path / name).mkdir()
    tables = {name: Sampled() for name in ("log", "poll")}
    collectors = [
        collecting.start(settings_of(cluster, source, READER), tmp_path / name, tables[name])
        for name, source in (("log", "metadata_log"), ("poll", "poll"))
    ]
    collecting.until(lambda: all(len(each.partitions()) == 60 for each in tables.values()), "the topic")
    collecting.until(lambda: all(each.rounds for each in tables.values()), "response times")

    expiry = "listener_certificate_expiry_timestamp_seconds"
    replicating = [("broker", str(broker), "REPLICATION") for broker in cluster.broker_ids]
    for each in collectors:  # one by what brokers have registered, one by what they are configured with
        collecting.until(
            lambda each=each: (
                sorted((labels["role"], labels["node"], labels["listener"]) for labels, _ in metrics(each, expiry))
                == replicating
            ),
            "the certificates of the listeners that brokers replicate over",
        )
        assert all(29 < (end - time.time()) / 86_400 < 31 for _, end in metrics(each, expiry))

    collecting.lines.clear()
    errors = [metrics(each, "connection_errors_total") for each in collectors]
    time.sleep(WATCHED_SECONDS)
    print("lines in", WATCHED_SECONDS, "s of sessions of", SESSION_SECONDS, "s:", collecting.lines)
    assert collecting.lines == []
    assert [metrics(each, "connection_errors_total") for each in collectors] == errors

    quota = ("--alter", "--add-config", "request_percentage=0.02", "--entity-type")
    cluster.run_tool("kafka.admin.ConfigCommand", *quota, "users", "--entity-default")
    collecting.until(lambda: collecting.count("isrwatch is throttled by a quota: ") >= 2, "a line of each collector")
    for each in tables.values():
        each.rounds.clear()
    time.sleep(WATCHED_SECONDS)
    seen = {
        name: [speed.response_micros for one in each.rounds for speed in one.values()] for name, each in tables.items()
    }
    print("throttled seconds:", [metrics(each, "connection_throttled_seconds_total") for each in collectors])
    print(
        "response times in ms while throttled:", {name: [each / 1_000 for each in some] for name, some in seen.items()}
    )
    for each in collectors:
        assert sum(value for _, value in metrics(each, "connection_throttled_seconds_total")) > 1
    for some in seen.values():
        assert all(micros < 500_000 for micros in some)
    findings = list(CHECKS["samples"](settings_of(cluster, "poll", READER)))
    print(findings)
    assert any("isrwatch is throttled by a quota" in sentence for _, sentence in findings)
