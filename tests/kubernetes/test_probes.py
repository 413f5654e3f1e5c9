"""Probes mean what they say: an outage of others starts no container again, and one that hangs is started again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.sandbox import Sandbox
from tests.kubernetes.control_plane import Api
from tests.kubernetes.installation import Installation
from tests.kubernetes.kubelet import Kubelet, Pod
from tests.plugins.kafka_bus import bus_settings
from tests.plugins.sandbox import MakeSandbox
from tests.stores.s3 import versitygw

pytest_plugins = ("tests.plugins.package",)
pytestmark = [pytest.mark.kubernetes, pytest.mark.kafka, pytest.mark.store, pytest.mark.long]
OUTAGE_SECONDS = 60.0  # twice what a liveness probe would take


@pytest.fixture
def kafka(kafka_cluster: MakeSandbox) -> Sandbox:
    return kafka_cluster(brokers=1)


@pytest.fixture
def installation(tmp_path: Path, kubernetes: Api, kubelet: Kubelet, kafka: Sandbox) -> Iterator[Installation]:
    """Give collector and exporter as they are deployed, and no job, so no tables."""
    with versitygw(tmp_path / "store") as store:
        made = Installation(tmp_path / "probed", kubernetes, kubelet, bus_settings(kafka.bootstrap_servers), store)
        try:
            made.prepare("job.enabled=false")
            yield made
        finally:
            made.close()


def only(installation: Installation, component: str) -> Pod:
    return installation.pods(**{"app.kubernetes.io/component": component})[0]


@pytest.mark.timeout(900)
def test_only_what_hangs_is_started_again(installation: Installation, kafka: Sandbox) -> None:
    installation.eventually(lambda: len(installation.pods()) > 1, "both pods are there")
    installation.eventually(lambda: only(installation, "collector").is_ready, "the collector reads the cluster")
    collector, exporter = only(installation, "collector"), only(installation, "exporter")
    (broker,) = kafka.broker_ids
    kafka.kill(broker)
    installation.eventually(lambda: not collector.is_ready, "without its cluster the collector is not ready")
    time.sleep(OUTAGE_SECONDS)
    kafka.start(broker)
    installation.eventually(lambda: collector.is_ready, "it reads the cluster again")
    assert (collector.restarts, exporter.restarts) == (0, 0)
    assert not exporter.is_ready, "there are no tables"

    assert collector.container is not None
    collector.container.signal(signal.SIGSTOP)
    installation.eventually(lambda: collector.restarts == 1, "a collector that hangs is started again")
    installation.eventually(lambda: collector.is_ready, "it goes on")
