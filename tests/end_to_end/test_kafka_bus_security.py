"""Kafka as the bus behind TLS, with a certificate of the client and a login: one set of properties for both ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.sandbox import Sandbox, plan_cluster
from streaming.contracts.observations import Channel
from tests.end_to_end.test_kafka_bus import KafkaPipeline
from tests.plugins.kafka_bus import bus_settings
from tests.sources.test_tls_real import Authority, secured

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def broker(ours: Authority) -> Iterator[Sandbox]:
    """A broker with a listener that asks for a certificate and a password."""
    ours.sign("server")
    stored = ours.folder / "server-all.pem"
    stored.write_text((ours.folder / "server.key").read_text() + (ours.folder / "server.pem").read_text())
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    plan = plan_cluster(
        brokers=1,
        properties={
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT,REPLICATION:PLAINTEXT,"
            "SECURE:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secure.plain.sasl.jaas.config": f'{login} user_bus="a;b";',
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(stored),
            "ssl.client.auth": "required",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ours.pem),
            "listener.name.secure.ssl.client.auth": "required",
        },
    )
    with Sandbox(
        replace(plan, node_properties={number: secured(ports) for number, ports in plan.brokers.items()})
    ) as it:
        yield it


def test_a_job_reads_the_bus_with_the_certificate_and_the_login_of_the_collector(
    broker: Sandbox, ours: Authority, tmp_path: Path
) -> None:
    ours.sign("client")
    (ours.folder / "password").write_text("a;b\n")
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bus",
        "sasl.password": f"file:{ours.folder / 'password'}",
        "ssl.ca.location": str(ours.pem),
        "ssl.certificate.location": str(ours.folder / "client.pem"),
        "ssl.key.location": str(ours.folder / "client.key"),
    }
    (ports,) = broker.plan.brokers.values()
    pipeline = KafkaPipeline(tmp_path, bus_settings(f"127.0.0.1:{ports.metrics}", client=client))
    try:
        collector = pipeline.simulate("--speed", "10")
        job = pipeline.job()
        pipeline.eventually(lambda: len(pipeline.rows("partition_changes")) > 20, "the job applies", job)
        assert collector.stop() == 0, collector.text()
        pipeline.eventually(pipeline.is_applied, "everything is applied", job)
        assert pipeline.last_positions()[Channel.REPLICATION, "simulated:collector-1"] > 0
        assert job.stop() == 0, job.text()[-3000:]
        assert "a;b" not in job.text() + collector.text()
    finally:
        pipeline.close()
