"""A real cluster that asks for certificates: by the log and by polling, and while certificates are replaced."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.sandbox import Sandbox, plan_cluster
from streaming.contracts.observations import SourceKind
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.collector.collector import Collector
from tests.plugins.real_collector import Collecting, Tables

LABELS = ("source", "role", "node", "property")
pytestmark = [pytest.mark.kafka, pytest.mark.long]
pytest_plugins = ["tests.plugins.real_collector"]


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.pem, self._key = folder, folder / f"{name}.pem", folder / f"{name}.key"
        openssl("req", "-x509", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.pem)

    def sign(self, name: str) -> None:
        """Write ``name``.key and ``name``.pem, with 127.0.0.1 as the host."""
        key, pem, request = (self.folder / f"{name}.{kind}" for kind in ("key", "pem", "csr"))
        extensions = self.folder / "host.cnf"
        extensions.write_text("subjectAltName=IP:127.0.0.1\n")
        openssl("req", "-new", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        openssl(
            "x509", "-req", "-in", request, "-CA", self.pem, "-CAkey", self._key, "-CAcreateserial", "-days", "30",
            "-extfile", extensions, "-out", pem,
        )  # fmt: skip


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def cluster(ours: Authority) -> Iterator[Sandbox]:
    """Two brokers with a listener that asks for certificates beside one that does not, and a controller that does."""
    ours.sign("server")
    stored = ours.folder / "server-all.pem"
    stored.write_text((ours.folder / "server.key").read_text() + (ours.folder / "server.pem").read_text())
    plan = plan_cluster(
        brokers=2,
        properties={
            "listener.security.protocol.map": "CONTROLLER:SSL,CLIENT:PLAINTEXT,REPLICATION:PLAINTEXT,SECURE:SSL",
            "ssl.keystore.type": "PEM", "ssl.keystore.location": str(stored), "ssl.client.auth": "required",
            "ssl.truststore.type": "PEM", "ssl.truststore.location": str(ours.pem),
        },
    )  # fmt: skip
    with Sandbox(
        replace(plan, node_properties={broker: secured(ports) for broker, ports in plan.brokers.items()})
    ) as it:
        yield it


def secured(ports: Any) -> dict[str, str]:
    secure = f"SECURE://127.0.0.1:{ports.metrics}"
    listeners = f"CLIENT://127.0.0.1:{ports.client},REPLICATION://127.0.0.1:{ports.replication},{secure}"
    return {"listeners": listeners, "advertised.listeners": listeners}


def settings_of(cluster: Sandbox, ours: Authority, primary_source: str) -> Settings:
    client = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(ours.pem),
        "ssl.certificate.location": str(ours.folder / "client.pem"),
        "ssl.key.location": str(ours.folder / "client.key"),
    }
    servers = ",".join(f"127.0.0.1:{ports.metrics}" for ports in cluster.plan.brokers.values())
    return Settings(
        cluster=ClusterSettings(bootstrap_servers=servers, client=client),
        collect=CollectSettings(
            collector="collector-1",
            primary_source=primary_source,
            heartbeat_interval=1,
            poll_interval=0.5,
            config_interval=1,
            offsets_interval=1,
        ),
    )


def metrics(collector: Collector, name: str) -> dict[tuple[str, ...], float]:
    """Read one family of the collector's page: the values of some labels to the value."""
    families = text_string_to_metric_families(generate_latest(collector.registry).decode())
    return {
        tuple(sample.labels[label] for label in LABELS if label in sample.labels): sample.value
        for family in families
        if family.name == f"isrwatch_collector_{name}"
        for sample in family.samples
    }


def test_a_cluster_that_asks_for_certificates_is_read_and_their_replacement_is_followed(
    cluster: Sandbox, ours: Authority, collecting: Collecting, tmp_path: Path
) -> None:
    ours.sign("client")
    lines = collecting.lines
    read = {source: Tables() for source in ("metadata_log", "admin")}
    collectors = {source: start(collecting, cluster, ours, source, tables) for source, tables in read.items()}
    cluster.admin.create_topic("orders", partitions=2, replication_factor=2)
    collecting.until(lambda: all(len(tables.partitions()) == 2 for tables in read.values()), "the topic")
    assert [tables.primary() for tables in read.values()] == [SourceKind.METADATA_LOG, SourceKind.POLL]
    every = {("broker", "1"): 1.0, ("broker", "2"): 1.0, ("controller", "101"): 1.0}
    expiry = "listener_certificate_expiry_timestamp_seconds"
    for each in collectors.values():
        collecting.until(lambda each=each: metrics(each, "listener_up") == every, "every listener")
        collecting.until(lambda each=each: metrics(each, expiry).keys() == every.keys(), "every certificate")

    def are_up(up: float) -> bool:
        return all(metrics(each, "source_up")[f"{name}:collector-1",] == up for name, each in collectors.items())

    Authority(tmp_path, "foreign").sign("client")
    for node in (101, 1, 2):
        cluster.kill(node)
    for node in (101, 1, 2):
        cluster.launch(node)  # admin cannot be asked before all of them run
    collecting.until(lambda: are_up(0), "the refusal")
    cluster.up()
    cluster.admin.create_topic("late", partitions=1, replication_factor=2)
    collecting.until(lambda: any("ssl keys" in line or "closed the connection" in line for line in lines), "a line")
    assert not [tables for tables in read.values() if ("late", 0) in tables.partitions()]

    ours.sign("client")
    collecting.until(lambda: all(("late", 0) in tables.partitions() for tables in read.values()), "it is read again")
    collecting.until(lambda: are_up(1), "the sources are up")
    for each in collectors.values():
        assert set(metrics(each, "client_certificate_expiry_timestamp_seconds")) == {
            ("cluster.client ssl.ca.location",), ("cluster.client ssl.certificate.location",)
        }  # fmt: skip


def start(collecting: Collecting, cluster: Sandbox, ours: Authority, source: str, tables: Tables) -> Collector:
    """Start a collector that reads the metadata log or polls, with a folder of its own."""
    folder = ours.folder / source
    folder.mkdir()
    primary = "metadata_log" if source == "metadata_log" else "poll"
    return collecting.start(settings_of(cluster, ours, primary), folder, tables)
