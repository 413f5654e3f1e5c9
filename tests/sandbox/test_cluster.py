from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException

from deploy.sandbox import PartitionDescription, TopicWriter, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.sandbox import DumpedRecord, Sandbox

    MakeSandbox = Any

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SEGMENTS = ([1, 2, 3], [2, 3, 1])


@pytest.fixture(scope="module")
def shared(kafka_module_cluster: MakeSandbox) -> Sandbox:
    sandbox: Sandbox = kafka_module_cluster(proxy=True)
    return sandbox


@pytest.fixture
def cluster(shared: Sandbox) -> Iterator[Sandbox]:
    """Give the module's cluster, healed afterwards: a test that fails does not fail the next."""
    yield shared
    shared.heal()


@pytest.fixture
def topic(cluster: Sandbox, request: pytest.FixtureRequest) -> str:
    """Give a topic of the test's own, with all replicas in sync."""
    name = str(request.node.name)
    cluster.admin.create_topic(name, assignment=SEGMENTS, configs={"min.insync.replicas": "2"})
    return name


def dumped(cluster: Sandbox, topic: str) -> list[tuple[str, dict[str, Any]]]:
    """Give the records of one topic's partitions and of all brokers since it was created."""
    records = cluster.dump_metadata_log()
    born = next(index for index, record in enumerate(records) if record.data.get("name") == topic)
    topic_id = records[born].data["topicId"]
    return [(record.kind, record.data) for record in records[born:] if mentions(record, topic_id)]


def mentions(record: DumpedRecord, topic_id: str) -> bool:
    return record.data.get("topicId") == topic_id or "BROKER" in record.kind


def test_a_cluster_comes_up_and_describes_itself(cluster: Sandbox, topic: str) -> None:
    assert cluster.broker_ids == (1, 2, 3)
    assert cluster.controller_ids == (101,)
    assert frozenset({1, 2, 3}) == cluster.admin.live_brokers()
    in_sync = frozenset({1, 2, 3})
    expected = {
        (topic, 0): PartitionDescription(1, (1, 2, 3), in_sync),
        (topic, 1): PartitionDescription(2, (2, 3, 1), in_sync),
    }
    assert expected == cluster.admin.describe(topic)


def test_what_a_node_is_told_can_be_overridden(kafka_cluster: MakeSandbox) -> None:
    own = {1: {"broker.rack": "a"}}
    cluster = kafka_cluster(brokers=1, node_properties=own, replica_lag_time_max_ms=12345)
    told = (cluster.root / "node-1" / "server.properties").read_text().splitlines()
    assert {"broker.rack=a", "replica.lag.time.max.ms=12345", "default.replication.factor=1"} <= set(told)
    registered = [record.data for record in cluster.dump_metadata_log() if record.kind == "REGISTER_BROKER_RECORD"]
    assert [data["rack"] for data in registered] == ["a"]


def test_a_killed_broker_is_fenced_and_comes_back(cluster: Sandbox, topic: str) -> None:
    cluster.kill(2)
    assert cluster.pid(2) is None
    assert cluster.admin.wait_isr(topic, 1, {1, 3}).leader == 3
    cluster.start(2)
    cluster.admin.wait_isr(topic, 1, {1, 2, 3})
    cluster.admin.elect_preferred(topic, 1)
    wait_until(lambda: cluster.admin.describe(topic)[topic, 1].leader == 2, "the preferred leader")
    registrations = [data for kind, data in dumped(cluster, topic) if kind == "BROKER_REGISTRATION_CHANGE_RECORD"]
    assert [data["fenced"] for data in registrations if data["brokerId"] == 2 and "fenced" in data] == [1, -1]


def test_a_stopped_broker_shuts_down_in_order(cluster: Sandbox, topic: str) -> None:
    cluster.stop(2)
    assert cluster.admin.wait_isr(topic, 1, {1, 3}).leader == 3
    cluster.start(2)
    cluster.admin.wait_isr(topic, 1, {1, 2, 3})
    shutdowns = [data for kind, data in dumped(cluster, topic) if data.get("inControlledShutdown") == 1]
    assert [data["brokerId"] for data in shutdowns] == [2]


def test_a_paused_broker_is_fenced_and_goes_on_with_the_same_epoch(cluster: Sandbox, topic: str) -> None:
    before = cluster.pid(3)
    cluster.pause(3)
    cluster.admin.wait_isr(topic, 0, {1, 2})
    cluster.resume(3)
    cluster.admin.wait_isr(topic, 0, {1, 2, 3})
    assert before == cluster.pid(3)
    assert "REGISTER_BROKER_RECORD" not in [kind for kind, data in dumped(cluster, topic) if data.get("brokerId") == 3]


def test_a_held_follower_lags_without_being_fenced(cluster: Sandbox, topic: str) -> None:
    with TopicWriter(cluster.bootstrap_servers, topic) as writer:
        cluster.proxy.hold(1, 3)
        assert PartitionDescription(1, (1, 2, 3), frozenset({1, 2})) == cluster.admin.wait_isr(topic, 0, {1, 2})
        cluster.proxy.release(1, 3)
        cluster.admin.wait_isr(topic, 0, {1, 2, 3})
        wait_until(lambda: writer.delivered > 0, "a delivered record")
    records = dumped(cluster, topic)
    changes = [data["isr"] for kind, data in records if kind == "PARTITION_CHANGE_RECORD" and data["partitionId"] == 0]
    assert [sorted(isr) for isr in changes[:2]] == [[1, 2], [1, 2, 3]]
    assert "BROKER_REGISTRATION_CHANGE_RECORD" not in [kind for kind, data in records if data.get("brokerId") == 3]


def test_a_partition_moves_and_a_topic_grows_and_goes(cluster: Sandbox, topic: str) -> None:
    cluster.admin.reassign(topic, 0, [3, 1])
    cluster.admin.wait_isr(topic, 0, {1, 3})
    cluster.admin.add_partitions(topic, 3)
    cluster.admin.alter_topic_config(topic, {"min.insync.replicas": None})
    cluster.admin.delete_topic(topic)
    kinds = [kind for kind, data in dumped(cluster, topic) if data.get("topicId")]
    assert tuple(kinds[-2:]) == ("PARTITION_RECORD", "REMOVE_TOPIC_RECORD")


def test_three_controllers_survive_the_loss_of_one(kafka_cluster: MakeSandbox) -> None:
    cluster = kafka_cluster(brokers=1, controllers=3)
    assert list(cluster.controller_ids) == [101, 102, 103]
    cluster.kill(101)

    def created() -> bool:
        """While the quorum elects, and the broker finds the new controller, Kafka refuses."""
        with suppress(KafkaException):
            cluster.admin.create_topic("after", replication_factor=1)
        return bool(cluster.admin.describe("after"))

    wait_until(created, "a topic under the next controller")
    assert {("after", 0)} == set(cluster.admin.describe("after"))


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


@pytest.mark.parametrize("version", ["3.9", "1.0"])
def test_a_cluster_with_zookeeper_has_an_id_and_leaves_a_dead_broker_out(
    kafka_cluster: MakeSandbox, version: str
) -> None:
    cluster = kafka_cluster(brokers=2, version=version, zookeeper=True, zookeeper_session_timeout_ms=4000)
    cluster.admin.create_topic("orders", partitions=1, replication_factor=2)
    assert len(cluster.cluster_id) == len(cluster.plan.cluster_id)
    assert cluster.controller_ids == ()
    cluster.kill(2)
    cluster.admin.wait_isr("orders", 0, {1})
    cluster.start(2)
    cluster.admin.wait_isr("orders", 0, {1, 2})
