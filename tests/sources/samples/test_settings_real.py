"""Settings of a real cluster, changed by Kafka's own tools, as rows of the tables; and whether their risks are true."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from deploy.sandbox import Sandbox
from streaming.contracts.durability import (
    BrokerVersions,
    FeatureLevels,
    LeftThrottles,
    ThrottledReplicas,
    ThrottleRates,
    TopicDurability,
    Weakness,
    left_throttles,
    versions_of,
)
from streaming.contracts.identifiers import Micros, partition_for
from streaming.contracts.topic_roles import TopicRole
from streaming.jobs.shards.samples import SampleBatch
from streaming.sources.samples.settings import SettingsKind
from tests.jobs.shards.test_batch import published, rows
from tests.plugins.local_http import wait_until
from tests.plugins.sandbox import MakeSandbox
from tests.sources.samples.opened import open_samples

pytestmark = [pytest.mark.kafka, pytest.mark.long]
CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
AT = [TopicPartition("read", 0, 0)]

PERIOD = Micros(300_000)


@pytest.fixture(scope="module")
def cluster(kafka_module_cluster: MakeSandbox) -> Sandbox:
    return kafka_module_cluster(brokers=3, replica_lag_time_max_ms=4000, offsets_commit_timeout_ms=1500)


class Sampled:
    """Samples a cluster into tables, as the collector and the job do."""

    def __init__(self, cluster: Sandbox, folder: Path) -> None:
        self._folder, self._batch, self._count = folder, SampleBatch(folder), 0
        self.source = open_samples(cluster.bootstrap_servers, lambda: [SettingsKind(PERIOD)], PERIOD)

    def until(self, holds: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not self._is_there() or not holds():
            assert time.monotonic() < deadline, what
            observed = self.source.poll(Micros(time.time_ns() // 1_000))
            self._batch.apply(published(observed, self._count))
            self._count += len(observed)

    def topic(self, topic: str) -> dict[str, Any]:
        return next((row for row in rows(self._folder, "topic_settings") if row["topic"] == topic), {})

    def brokers(self) -> dict[int, dict[str, Any]]:
        return {row["broker"]: row for row in rows(self._folder, "broker_settings")}

    def features(self) -> list[dict[str, Any]]:
        return rows(self._folder, "broker_features")

    def left(self, reassigning: int = 0) -> LeftThrottles:
        topics = {
            row["topic"]: ThrottledReplicas(row["leader_throttled_replicas"], row["follower_throttled_replicas"])
            for row in rows(self._folder, "topic_settings")
        }
        rates = {
            broker: ThrottleRates(row["leader_throttled_rate"], row["follower_throttled_rate"])
            for broker, row in self.brokers().items()
        }
        return left_throttles(topics, rates, reassigning=reassigning)

    def _is_there(self) -> bool:
        return self._count > 0


@pytest.fixture
def sampled(cluster: Sandbox, tmp_path: Path) -> Iterator[Sampled]:
    sampled = Sampled(cluster, tmp_path / "tables")
    with closing(sampled.source):
        yield sampled


def configure(cluster: Sandbox, kind: str, name: str, *change: str) -> None:
    cluster.run_tool(CONFIGS, "--alter", "--entity-type", kind, "--entity-name", name, *change)


def test_what_kafka_configs_sets_is_what_the_rows_say(cluster: Sandbox, sampled: Sampled) -> None:
    cluster.admin.create_topic("orders", assignment=[[1, 2, 3], [2, 3, 1]], configs={"min.insync.replicas": "2"})
    sampled.until(lambda: sampled.topic("orders") and len(sampled.brokers()) == 3, "the first samples")
    row = sampled.topic("orders")
    assert (row["partition_count"], row["replication_factor"], row["min_isr"]) == (2, 3, 2)
    assert (row["allows_unclean_election"], row["cleanup_policy"], row["weaknesses"]) == (False, "delete", [])
    assert (row["leader_throttled_replicas"], row["follower_throttled_replicas"], row["role"]) == ("", "", None)
    (of_broker,) = [row for broker, row in sampled.brokers().items() if broker == 1]
    assert (of_broker["replica_lag_time_max_ms"], of_broker["leader_throttled_rate"]) == (4000, None)

    added = "min.insync.replicas=1,unclean.leader.election.enable=true,cleanup.policy=compact"
    configure(cluster, "topics", "orders", "--add-config", added)
    configure(cluster, "brokers", "2", "--add-config", "follower.replication.throttled.rate=123456")
    sampled.until(lambda: sampled.topic("orders")["min_isr"] == 1, "the topic's new settings")
    sampled.until(lambda: sampled.brokers()[2]["follower_throttled_rate"] == 123456, "the broker's new settings")
    row = sampled.topic("orders")
    assert (row["allows_unclean_election"], row["cleanup_policy"]) == (True, "compact")
    assert row["weaknesses"] == ["unclean_election", "min_isr_one"]
    assert sampled.left() == LeftThrottles({}, {2: []})

    # The default of all brokers, of a topic that sets nothing itself.
    cluster.admin.create_topic("plain", assignment=[[1]])
    of_all = (CONFIGS, "--alter", "--entity-type", "brokers", "--entity-default")
    cluster.run_tool(*of_all, "--add-config", "unclean.leader.election.enable=true")
    sampled.until(lambda: sampled.topic("plain").get("allows_unclean_election"), "the default of the brokers")
    assert sampled.topic("plain")["weaknesses"] == ["one_replica"]
    sampled.until(lambda: all(row["allows_unclean_election"] for row in sampled.brokers().values()), "of all of them")
    cluster.run_tool(*of_all, "--delete-config", "unclean.leader.election.enable")
    configure(cluster, "brokers", "2", "--delete-config", "follower.replication.throttled.rate")
    cluster.admin.delete_topic("plain")
    sampled.until(lambda: sampled.left() == LeftThrottles({}, {}), "no throttle")


def test_a_throttle_stays_behind_until_the_reassignment_is_verified(
    cluster: Sandbox, sampled: Sampled, tmp_path: Path
) -> None:
    cluster.admin.create_topic("moved", assignment=[[1, 2]], configs={"min.insync.replicas": "1"})
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1, 3]}]}))
    of_plan = ("--reassignment-json-file", str(plan))
    cluster.run_tool(REASSIGN, *of_plan, "--execute", "--throttle", "1000000")
    cluster.admin.wait_isr("moved", 0, {1, 3})
    sampled.until(lambda: {1, 2, 3} <= sampled.left().brokers.keys() and sampled.left().topics, "the throttle")
    left = sampled.left()
    # Kafka's tool throttles the replicas before as leaders, and those that are added as followers.
    assert left.topics == {"moved": [1, 2, 3]}
    assert left.brokers == {1: ["moved"], 2: ["moved"], 3: ["moved"]}
    assert sampled.topic("moved")["leader_throttled_replicas"] == "0:1,0:2"
    assert sampled.topic("moved")["follower_throttled_replicas"] == "0:3"
    assert {row["leader_throttled_rate"] for row in sampled.brokers().values()} == {1_000_000}
    assert sampled.left(reassigning=1) == LeftThrottles({}, {})
    cluster.run_tool(REASSIGN, *of_plan, "--verify")
    sampled.until(lambda: sampled.left() == LeftThrottles({}, {}), "the throttle is gone")


def test_the_features_are_those_that_kafka_features_describes(cluster: Sandbox, sampled: Sampled) -> None:
    sampled.until(lambda: len({row["broker"] for row in sampled.features()}) == 3, "the features")
    line = r"Feature: (\S+)\s+SupportedMinVersion: \S+\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)"
    printed = cluster.run_tool(FEATURES, "--bootstrap-server", cluster.bootstrap_servers, "describe")
    described = {name: each for name, *each in re.findall(line, printed)}
    assert described
    found = sampled.features()
    by_broker = {broker: {row["feature"] for row in found if row["broker"] == broker} for broker in (1, 2, 3)}
    assert by_broker == {broker: described.keys() for broker in (1, 2, 3)}
    finalized = {row["feature"]: row["finalized_level"] for row in found}
    of_numbers = {name: int(level) for name, (_, level) in described.items() if level.isdigit()}
    assert of_numbers.items() <= finalized.items()
    levels = {
        name: FeatureLevels(level, {row["broker"]: row["supported_level"] for row in found if row["feature"] == name})
        for name, level in finalized.items()
    }
    assert versions_of(levels) == BrokerVersions({}, None)


def delivered(cluster: Sandbox, topic: str) -> str | None:
    """Write one record with acks=all; return the error, if there is one."""
    errors: list[Any] = []
    timeouts = {"message.timeout.ms": 2000, "request.timeout.ms": 2000}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **timeouts})
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(15) == 0
    (error,) = errors
    return None if error is None else str(error.name())


def test_what_is_called_a_risk_happens_while_a_broker_is_down(cluster: Sandbox) -> None:
    topics = {
        "spare": TopicDurability("spare", 3, 2),
        "strict": TopicDurability("strict", 3, 3),
        "above": TopicDurability("above", 1, 2),
        "one": TopicDurability("one", 1, 1),
    }
    for name, durability in topics.items():
        replicas = [[1, 2, 3] if durability.replication_factor == 3 else [3 if name == "one" else 1]]
        cluster.admin.create_topic(name, assignment=replicas, configs={"min.insync.replicas": str(durability.min_isr)})
    assert {name: delivered(cluster, name) for name in topics} == dict.fromkeys(topics)
    groups = Groups(cluster)
    cluster.stop(3)
    try:
        cluster.admin.wait_isr("strict", 0, {1, 2})
        refused = {name for name in topics if delivered(cluster, name) is not None}
        groups.fail_under_min_isr()
    finally:
        cluster.start(3)
        groups.close()
    assert refused == {"strict", "one"}
    spare = {Weakness.NO_REPLICA_TO_SPARE, Weakness.ONE_REPLICA}
    assert all(spare & {*topics[name].weaknesses()} for name in refused)
    # Since Kafka 3.7 a minimum above the replication factor counts as it: one replica is enough, if it is there.
    assert Weakness.MIN_ISR_ABOVE_REPLICATION_FACTOR in topics["above"].weaknesses()
    assert assignment_of(cluster, "waiting") is not None


class Groups:
    """A group and a transactional id of a cluster whose internal topics have three replicas and need all of them."""

    def __init__(self, cluster: Sandbox) -> None:
        self._cluster = cluster
        cluster.admin.create_topic("read", assignment=[[1]])
        assert assignment_of(cluster, "before") is not None
        self._committing = consumer_of(cluster, "billing")
        self._committing.commit(offsets=AT, asynchronous=False)
        self._transactional = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "payments"}
        Producer(self._transactional).init_transactions(30)
        for topic in (OFFSETS, STATE):
            configure(cluster, "topics", topic, "--add-config", "min.insync.replicas=3")

    def fail_under_min_isr(self) -> None:
        """Commits, rebalances and transactions fail while a replica is missing."""
        for topic, key in ((OFFSETS, "billing"), (OFFSETS, "waiting"), (STATE, "payments")):
            self._cluster.admin.wait_isr(topic, partition_for(key, _partitions(self._cluster, topic)), {1, 2})
        with pytest.raises(KafkaException):
            Producer({**self._transactional, "client.id": "again"}).init_transactions(2)
        assert assignment_of(self._cluster, "waiting", seconds=3) is None
        with pytest.raises(KafkaException, match="COORDINATOR_NOT_AVAILABLE"):
            self._committing.commit(offsets=AT, asynchronous=False)

    def close(self) -> None:
        """Undo what the internal topics need."""
        for topic in (OFFSETS, STATE):
            configure(self._cluster, "topics", topic, "--delete-config", "min.insync.replicas")
        self._committing.close()


def test_before_kafka_3_7_a_minimum_above_the_replication_factor_refuses_every_write(
    kafka_cluster: MakeSandbox, tmp_path: Path
) -> None:
    old = kafka_cluster(brokers=1, version="3.6")
    old.admin.create_topic("above", assignment=[[1]], configs={"min.insync.replicas": "2"})
    assert delivered(old, "above") in {"NOT_ENOUGH_REPLICAS", "_MSG_TIMED_OUT"}
    sampled = Sampled(old, tmp_path / "tables")
    with closing(sampled.source):
        sampled.until(lambda: sampled.topic("above") and sampled.brokers() and sampled.features(), "the samples")
    assert sampled.topic("above")["weaknesses"] == ["min_isr_above_replication_factor", "one_replica"]
    # Of a broker that answers in version 3 of ApiVersions, features that can be off are unknown.
    assert {row["feature"] for row in sampled.features()} == {"metadata.version"}


def consumer_of(cluster: Sandbox, group: str) -> Consumer:
    return Consumer({
        "bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "enable.auto.commit": False,
        "socket.timeout.ms": 2000,
    })  # fmt: skip


def assignment_of(cluster: Sandbox, group: str, seconds: float = 30.0) -> list[TopicPartition] | None:
    """What a consumer of a group gets within some seconds; None for nothing."""
    consumer = consumer_of(cluster, group)
    consumer.subscribe(["read"])
    deadline = time.monotonic() + seconds
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.2)
    assigned = consumer.assignment()
    consumer.close()
    return assigned or None


def test_internal_topics_have_their_role_and_the_consequence(cluster: Sandbox, sampled: Sampled) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "payments"})
    producer.init_transactions(30)
    with closing(Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing"})) as consumer:
        wait_until(lambda: has_coordinator(consumer))  # who asks for one makes its topic
    sampled.until(lambda: sampled.topic(STATE) and sampled.topic(OFFSETS), "the internal topics")
    row = sampled.topic(OFFSETS)
    assert (row["role"], row["cleanup_policy"]) == (TopicRole.CONSUMER_OFFSETS, "compact")
    assert row["consequence"] == "commits and rebalances of the groups kept there fail"
    assert "not_compacted" not in row["weaknesses"]
    assert sampled.topic(STATE)["role"] == TopicRole.TRANSACTION_STATE


def has_coordinator(consumer: Consumer) -> bool:
    """Ask for committed offsets; a coordinator that was just elected refuses for a moment."""
    try:
        consumer.committed([TopicPartition(STATE, 0)], timeout=30)
    except KafkaException as error:
        if error.args[0].code() not in {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}:
            raise
        return False
    return True


def _partitions(cluster: Sandbox, topic: str) -> int:
    return sum(name == topic for name, _ in cluster.admin.describe())
