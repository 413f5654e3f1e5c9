"""An upgrade with 100,000 partitions in the tables starts each container once; a bad one is rolled back by one command.

helm and the controllers are real, and so are the programs: the collector polls brokers that speak Kafka's protocol
(``tests/benchmarks``), the job and the exporter read what it wrote. The stand-in for the kubelet evaluates the probes.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks._processes import memory
from tests.benchmarks._stand_ins import Size, brokers
from tests.kubernetes.chart import packaged, run_helm
from tests.kubernetes.control_plane import Api
from tests.kubernetes.kubelet import Kubelet, Pod
from tests.plugins.local_http import wait_until

pytest_plugins = ("tests.plugins.package",)
pytestmark = [pytest.mark.kubernetes, pytest.mark.chart, pytest.mark.spark, pytest.mark.long]
PARTITIONS = 100_000
NAMESPACE = "upgraded"
PATIENCE_SECONDS = 900.0
WATCHED_SECONDS = 120.0
"""How long nothing may be started again after an upgrade: four times what a liveness probe takes to end a container."""
VALUES = """\
clusters:
  - name: large
    bootstrap_servers: {servers}
settings:
  collect: {{primary_source: poll}}
job: {{extraEnv: [{{name: SPARK_LOCAL_IP, value: 127.0.0.1}}]}}
"""


@pytest.fixture
def values(tmp_path: Path) -> Iterator[Path]:
    with brokers(Size(PARTITIONS)) as cluster:
        file = tmp_path / "values.yaml"
        file.write_text(VALUES.format(servers=cluster.servers))
        yield file


@pytest.fixture
def namespace(kubernetes: Api, kubelet: Kubelet) -> Iterator[str]:
    assert kubelet.pods == {}
    kubernetes.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield NAMESPACE
    kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait")


class Release:
    """A release of the chart, whose pods the stand-in runs."""

    def __init__(self, api: Api, kubelet: Kubelet) -> None:
        self.api, self.kubelet = api, kubelet
        self.seen: dict[str, Pod] = {}

    def helm(self, verb: str, *arguments: str | Path) -> None:
        ran = run_helm(verb, "isrwatch", *arguments, "--namespace", NAMESPACE, api=self.api)
        assert ran.returncode == 0, ran.stderr

    def pod(self) -> Pod | None:
        found = self.kubelet.pods.get("isrwatch-0")
        if found is not None:
            self.seen[found.uid] = found
        return found

    def other_than(self, before: Pod | None) -> Pod:
        """Return the pod that takes the place of another one."""

        def other() -> Pod | None:
            found = self.pod()
            return None if found is None or (before is not None and found.uid == before.uid) else found

        return wait_until(other, seconds=PATIENCE_SECONDS, what="there is a new pod")

    def gets_ready(self, pod: Pod, what: str) -> None:
        """Wait until each container is ready, and print when it answered, when it was ready, and what memory it has."""
        began, ready = time.monotonic(), dict[str, float]()

        def is_ready() -> bool:
            assert self.kubelet.failures == []
            for name, member in pod.members.items():
                if member.is_ready:
                    ready.setdefault(name, time.monotonic() - began)
            return pod.is_ready

        try:
            wait_until(is_ready, seconds=PATIENCE_SECONDS, what=f"{what}: every container is ready")
        except pytest.fail.Exception as error:
            raise AssertionError(f"{error}\n{self.kubelet.log(pod.name)[-6000:]}") from None
        for name, member in pod.members.items():
            assert member.container is not None
            assert member.answered is not None
            size = sum(memory(member.container.pid).values()) / 2**20
            limit = member.described["startupProbe"]
            allowed = limit["failureThreshold"] * limit["periodSeconds"]
            print(
                f"{what}: {name} answers after {member.answered:.0f} s of {allowed}, is ready after "
                f"{ready[name]:.0f} s, was started {member.restarts + 1} times, has {size:.0f} MiB"
            )


def partitions_of(pod: Pod) -> float:
    with urllib.request.urlopen(
        f"http://{pod.address}:9308/metrics?name[]=kafka_replication_cluster_partitions"
    ) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#"))


@pytest.mark.usefixtures("namespace")
@pytest.mark.timeout(3500)
def test_an_upgrade_on_100_000_partitions_starts_each_container_once(
    kubernetes: Api, kubelet: Kubelet, values: Path
) -> None:
    release = Release(kubernetes, kubelet)
    release.helm("install", packaged(), "--values", values)
    first = release.other_than(None)
    release.gets_ready(first, "installed")
    wait_until(lambda: partitions_of(first) == PARTITIONS, seconds=PATIENCE_SECONDS, what="every partition is there")

    release.helm("upgrade", packaged(), "--values", values, "--set", "settings.tables.history=30d")
    second = release.other_than(first)
    release.gets_ready(second, "upgraded")
    assert partitions_of(second) == PARTITIONS
    end = time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < end:
        assert release.pod() is second
        time.sleep(1)  # of a time in which nothing may happen
    assert [pod.restarts for pod in release.seen.values()] == [0, 0], "two pods, and no container was started twice"

    release.helm("upgrade", packaged(), "--values", values, "--set", "collect.extraArgs={--no-such-option}")
    third = release.other_than(second)
    wait_until(lambda: third.members and third.members["collector"].restarts > 1, what="the collector does not start")
    release.helm("rollback", "2")
    fourth = release.other_than(third)
    release.gets_ready(fourth, "rolled back")
    assert fourth.restarts == 0
    release.helm("uninstall")
    wait_until(lambda: release.pod() is None, seconds=PATIENCE_SECONDS, what="the pod is gone")
