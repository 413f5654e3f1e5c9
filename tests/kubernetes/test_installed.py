"""The chart as ``docs/kubernetes.md`` installs it: one pod reads a real Kafka, and an outage of it restarts nothing."""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from deploy.sandbox import Sandbox
from tests.end_to_end.test_large_form import blocks_of, replaced, section
from tests.kubernetes.chart import packaged
from tests.kubernetes.control_plane import Api
from tests.kubernetes.installation import PAGE, commands, environment
from tests.kubernetes.kubelet import Kubelet
from tests.plugins.local_http import wait_until
from tests.plugins.sandbox import MakeSandbox

pytest_plugins = ("tests.plugins.package",)
pytestmark = [
    pytest.mark.kubernetes, pytest.mark.chart, pytest.mark.kafka, pytest.mark.spark, pytest.mark.long,
]  # fmt: skip
PATIENCE_SECONDS = 600.0
MOST_COMMANDS = 5
PARTITIONS = 7
OUTAGE_SECONDS = 60.0  # twice what a liveness probe would take
FORWARD = "kubectl port-forward"
"""Needs a real kubelet; the test asks the address of the pod."""


@pytest.fixture
def kafka(kafka_cluster: MakeSandbox) -> Sandbox:
    made = kafka_cluster(brokers=1)
    made.admin.create_topic("orders", partitions=PARTITIONS, replication_factor=1)
    return made


@pytest.fixture
def folder(tmp_path: Path, kafka: Sandbox, kubernetes: Api, kubelet: Kubelet) -> Iterator[Path]:
    """The folder of the user: the chart, the values of the page, and a file of Kafka's own tools."""
    assert kubelet.pods == {}
    here = tmp_path / "user"
    here.mkdir()
    shutil.copy(packaged(), here)
    ((_, values),) = [each for each in blocks_of(section(PAGE.read_text(), "Install")) if each[0] == "yaml"]
    (here / "values.yaml").write_text(replaced(values, {"WATCHED": kafka.bootstrap_servers}))
    (here / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    kubernetes.kubeconfig(here / "kubeconfig")
    yield here
    kubernetes.kubectl("delete", "namespace", "isrwatch", "--ignore-not-found", "--wait")


@pytest.mark.timeout(1800)
def test_five_commands_lead_to_metrics_and_an_outage_of_kafka_starts_nothing_again(
    folder: Path, kafka: Sandbox, kubelet: Kubelet
) -> None:
    found = commands("Install")
    assert len(found) <= MOST_COMMANDS
    for command in found:
        if not command.startswith(FORWARD):
            ran = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=environment(folder), capture_output=True, text=True,
                check=False, timeout=PATIENCE_SECONDS,
            )  # fmt: skip
            assert ran.returncode == 0, f"{command}\n{ran.stderr}\n{kubelet.log('isrwatch-0')[-5000:]}"
    pod = kubelet.pods["isrwatch-0"]
    assert pod.is_ready
    assert partitions(pod.address) == PARTITIONS

    (broker,) = kafka.broker_ids
    kafka.kill(broker)
    offline = partial(partitions, pod.address, "offline_partitions")
    wait_until(lambda: offline() == PARTITIONS, seconds=PATIENCE_SECONDS, what="the outage is on the pages")
    time.sleep(OUTAGE_SECONDS)
    kafka.start(broker)
    wait_until(lambda: offline() == 0, seconds=PATIENCE_SECONDS, what="Kafka is back")
    wait_until(lambda: pod.is_ready, seconds=PATIENCE_SECONDS, what="every program is ready")
    assert pod.restarts == 0


def partitions(address: str, name: str = "partitions") -> float:
    url = f"http://{address}:9308/metrics?name[]=kafka_replication_cluster_{name}"
    with urllib.request.urlopen(url) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#"))
