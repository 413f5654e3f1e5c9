"""``docs/kubernetes.md`` is followed to the letter: collector, job and exporter as pods; what is killed comes back."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.control_plane import Api
from tests.kubernetes.installation import IMAGE, ON_SPARK, Installation, commands
from tests.kubernetes.kubelet import Kubelet
from tests.plugins.kafka_bus import bus_settings
from tests.plugins.sandbox import MakeSandbox
from tests.stores.s3 import versitygw

pytest_plugins = ("tests.plugins.package",)
pytestmark = [pytest.mark.kubernetes, pytest.mark.kafka, pytest.mark.spark, pytest.mark.store, pytest.mark.long]

EXECUTOR = {"spark-role": "executor"}


@pytest.fixture
def installation(
    tmp_path: Path, kubernetes: Api, kubelet: Kubelet, kafka_cluster: MakeSandbox
) -> Iterator[Installation]:
    with versitygw(tmp_path / "store") as store:
        bus = bus_settings(kafka_cluster(brokers=1).bootstrap_servers)
        made = Installation(tmp_path / "deployed", kubernetes, kubelet, bus, store)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.timeout(3000)  # it starts some twenty programs, and waits for Spark four times
def test_the_page_leads_to_pods_that_come_back_and_equal_tables(installation: Installation) -> None:
    for command in commands(ON_SPARK):
        if command.startswith("kubectl rollout"):
            installation.sites or installation.simulate(0)
        installation.run(command)
    assert {pod.manifest["spec"]["containers"][0]["image"] for pod in installation.pods()} == {
        f"{IMAGE}:0.1.0",
        f"{IMAGE}:0.1.0-full",
    }
    exporter, _ = installation.pods(**{"app.kubernetes.io/component": "exporter"})
    with urllib.request.urlopen(f"http://{exporter.address}:9308/metrics") as answer:
        assert "kafka_replication_" in answer.read().decode()
    installation.continues("the executors fold")

    (driver,) = installation.pods(**{"app.kubernetes.io/component": "job"})
    driver.kill()
    installation.eventually(lambda: driver.restarts == 1, "the driver is started again in its pod")
    installation.continues("the driver was killed")
    installation.eventually(lambda: len(installation.pods(**EXECUTOR)) == 2, "what the killed driver left is deleted")

    installation.run("kubectl delete pod isrwatch-job-0")
    installation.continues("the pod of the driver was deleted")

    installation.run(f"kubectl delete pod {installation.executors()[0].name}")
    installation.continues("the pod of an executor was deleted")

    installation.run("kubectl scale statefulset/isrwatch-collector --replicas 0")
    installation.run("kubectl wait --for delete pod/isrwatch-collector-0 --timeout 60s")
    installation.becomes_equal(installation.claim("data-isrwatch-collector-0") / "bus")
    installation.run("helm uninstall isrwatch")
    installation.eventually(lambda: not installation.pods(), "every pod is gone, also those of the executors")
