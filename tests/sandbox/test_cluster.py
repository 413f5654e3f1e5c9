"""A sandbox comes up as it is configured, and ends with its driver. Its faults are used by ``tests/end_to_end``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.sandbox import PartitionDescription, Sandbox, plan_cluster, wait_until
from streaming.runtime.jars import JMX_AGENT, SANDBOX, jar_paths, jars_folder

pytestmark = [pytest.mark.kafka]
JMX = Path(__file__).parents[2] / "conf" / "jmx-exporter.yml"


def test_a_cluster_comes_up_as_configured_and_describes_itself(kafka_4_3: Sandbox) -> None:
    cluster, topic = kafka_4_3, "described"
    cluster.admin.create_topic(topic, assignment=[[1, 2], [2, 1]])
    assert (cluster.broker_ids, cluster.controller_ids) == ((1, 2, 3), (101,))
    assert cluster.admin.live_brokers() == {1, 2, 3}
    assert cluster.admin.describe(topic) == {
        (topic, 0): PartitionDescription(1, (1, 2), frozenset({1, 2})),
        (topic, 1): PartitionDescription(2, (2, 1), frozenset({1, 2})),
    }
    cluster.admin.delete_topic(topic)
    properties = (cluster.root / "node-1" / "server.properties").read_text().splitlines()
    assert {"broker.rack=a", "broker.session.timeout.ms=2000", "default.replication.factor=3"} <= set(properties)
    registered = [record.data for record in cluster.dump_metadata_log() if record.kind == "REGISTER_BROKER_RECORD"]
    assert {(data["brokerId"], data["rack"]) for data in registered} == {(1, "a"), (2, None), (3, None)}


def test_no_node_outlives_the_process_that_drives_it() -> None:
    program = (
        "import sys, time; from deploy.sandbox import Sandbox, plan_cluster\n"
        "with Sandbox(plan_cluster(brokers=1)) as sandbox:\n"
        "    print(sandbox.root, *(sandbox.pid(node) for node in (101, 1)), flush=True); time.sleep(600)"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert driver.stdout is not None
    root, *pids = driver.stdout.readline().split()
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    wait_until(lambda: not any(b"kafka.Kafka" in commands(pid) for pid in pids), "the nodes to end")
    wait_until(lambda: not Path(root).exists(), "the temporary folder to go")


def commands(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache that has the jars and no archive of classes."""
    for group in (SANDBOX, JMX_AGENT):
        jar_paths(group)
    (tmp_path / "jars").symlink_to(jars_folder())
    monkeypatch.setenv("ISRWATCH_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.long
def test_the_first_sandbox_of_a_machine_may_have_the_metrics_agent(empty_cache: Path) -> None:
    """A JVM with an agent ends at once when it is to write an archive of classes."""
    with Sandbox(plan_cluster(brokers=1, jmx_config=JMX)) as sandbox:
        assert sandbox.state(1) == "running"
    assert list(empty_cache.glob("*.jsa")) == []


@pytest.mark.long
def test_the_first_sandbox_leaves_its_classes_to_the_next(empty_cache: Path) -> None:
    """Only two starts of Kafka show it."""
    with Sandbox(plan_cluster(brokers=1)):
        assert list(empty_cache.glob("*.jsa")) == []
    (archive,) = empty_cache.glob("*.jsa")
    with Sandbox(plan_cluster(brokers=1)) as second:
        for node in (101, 1):
            assert str(archive) in Path(f"/proc/{second.pid(node)}/maps").read_text()
