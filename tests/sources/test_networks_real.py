"""A real cluster whose sessions end, that hangs up on who is idle, throttles its monitor, and replicates over TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.sandbox import Sandbox, plan_cluster
from streaming.commands.doctor import CHECKS
from streaming.commands.doctor_machine import Status
from streaming.contracts.observations import Observation
from streaming.contracts.sample_blocks import BrokerSpeedsObserved
from streaming.contracts.state import ClusterState
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.collector.certificates import NO_RESTART
from streaming.sources.collector.collector import Collector
from tests.blocks import speeds_of
from tests.plugins.real_collector import READER, Collecting, Tables
from tests.plugins.sandbox import USERS
from tests.sources.test_tls_real import Authority, openssl

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


ENDS_AFTER_SECONDS = 60


def ending(folder: Path, name: str, authority: Path, seconds: float) -> None:
    """Sign ``name``.csr so that the certificate ends so soon: openssl x509 has whole days only."""
    now = datetime.now(UTC)
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("07\n")
    (folder / "ca.cnf").write_text(
        f"[ca]\ndefault_ca = d\n[d]\ndatabase = {folder}/index.txt\nserial = {folder}/serial\n"
        f"new_certs_dir = {folder}\ndefault_md = sha256\npolicy = any\nunique_subject = no\nx509_extensions = e\n"
        "[any]\ncommonName = supplied\n[e]\nsubjectAltName = IP:127.0.0.1\n"
    )
    dates = [f"{each:%Y%m%d%H%M%SZ}" for each in (now - timedelta(minutes=5), now + timedelta(seconds=seconds))]
    openssl(
        "ca", "-batch", "-notext", "-config", folder / "ca.cnf", "-cert", authority, "-keyfile",
        authority.with_suffix(".key"), "-in", folder / f"{name}.csr", "-out", folder / f"{name}.pem",
        "-startdate", dates[0], "-enddate", dates[1],
    )  # fmt: skip


@pytest.mark.timeout(600)
def test_the_certificate_of_the_inter_broker_listener_ends_and_no_broker_is_to_be_restarted(
    collecting: Collecting, tmp_path: Path
) -> None:
    ours = Authority(tmp_path, "ours")
    ours.sign("server")
    began = time.monotonic()
    ending(tmp_path, "server", ours.pem, ENDS_AFTER_SECONDS)
    stored = tmp_path / "server-all.pem"
    stored.write_text((tmp_path / "server.key").read_text() + (tmp_path / "server.pem").read_text())
    properties = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT,REPLICATION:SSL",
        "ssl.keystore.type": "PEM", "ssl.keystore.location": str(stored),
        "ssl.truststore.type": "PEM", "ssl.truststore.location": str(ours.pem),
    }  # fmt: skip
    with Sandbox(plan_cluster(brokers=3, properties=properties)) as cluster:
        cluster.admin.create_topic("orders", assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        settings = replace(
            settings_of(cluster, "metadata_log", {}),
            cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers),
        )
        tables = Sampled()
        collector = collecting.start(settings, tmp_path, tables)
        expiry = "listener_certificate_expiry_timestamp_seconds"
        collecting.until(lambda: len(metrics(collector, expiry)) == 3, "the certificates, before they end")
        collecting.until(lambda: len(tables.partitions()) == 3, "the topic")
        assert time.monotonic() - began < ENDS_AFTER_SECONDS
        assert (cluster_of(tables).expired_certificate, collecting.count("renew it")) == (None, 0)
        collecting.until(lambda: cluster_of(tables).expired_certificate, "the end")
        print("observed", time.monotonic() - began - ENDS_AFTER_SECONDS, "s after the end:", collecting.lines)
        collecting.until(lambda: collecting.count(NO_RESTART) == 3, "a line of each")
        assert all(len(each.isr) == 3 for each in tables.partitions().values())  # open connections last
        problems = [sentence for status, sentence in CHECKS["listeners"](settings) if status is Status.PROBLEM]
        assert len(problems) == 3
        assert all(sentence.endswith(NO_RESTART) for sentence in problems)


def cluster_of(tables: Tables) -> ClusterState:
    (cluster,) = tables.state.clusters.values()
    return cluster
