"""Samples of a real cluster where something is odd: the tables equal what Kafka's own Admin client says all the same.

Odd names of groups, offsets beyond the end of a log, a replica on its way to another directory, hundreds of open
transactions, and brokers of two versions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

from deploy.sandbox import Sandbox, plan_cluster, wait_until
from deploy.sandbox.plan import DEFAULT
from streaming.contracts.identifiers import Micros
from streaming.jobs.shards.samples import SampleBatch
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources.protocol.addresses import parse_servers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security
from streaming.sources.samples.source import open_samples
from tests.chaos_kafka.answers import Answers, KafkasAdmin, Unanswered
from tests.chaos_kafka.samples import TABLES, at, sample_differences
from tests.chaos_kafka.schedule import Shape
from tests.chaos_kafka.stage import planned
from tests.jobs.shards.test_batch import published, rows
from tests.sources.samples.late_producer import answered
from tests.topic_writer import TopicWriter

pytestmark = [pytest.mark.kafka, pytest.mark.long]
PATIENCE = 90.0
ROUND_SECONDS = 4.0
OFTEN = CollectSettings(
    offsets_interval=1,
    groups_interval=1,
    quorum_interval=1,
    transactions_interval=1,
    directories_interval=1,
    config_interval=2,
)
NAMES = ("two words", "Größe-組-🦊", "a" * 249, "tab\tand\nline", "__isrwatch", "*", "g" * 20_000)
OPEN = 100


class Sampled:
    """A cluster, the tables of its samples, and Kafka's own answers."""

    def __init__(self, cluster: Sandbox, folder: Path, kafka: KafkasAdmin) -> None:
        self.cluster, self.kafka = cluster, kafka
        self._folder, self._batch, self._count = folder, SampleBatch(folder), 0
        settings = Settings(cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers), collect=OFTEN)
        (self.source,) = open_samples(settings, print)

    def answers(self) -> Answers:
        """Return Kafka's answers, as soon as it has them all."""
        answers: list[Answers] = []

        def are_there() -> bool:
            with suppress(Unanswered):
                answers.append(self.kafka.answers())
            return bool(answers)

        wait_until(are_there, "Kafka to answer", seconds=PATIENCE)
        return answers[0]

    def equal(self, what: str) -> Answers:
        """Wait until the tables equal Kafka's answers; a row of a later round that does not fails at once."""
        deadline, answers = time.monotonic() + PATIENCE, self.answers()
        since = time.time()  # read after the answers: rows collected while they were asked for may be older than they
        while True:
            for _ in range(3):
                observed = self.source.poll(Micros(time.time_ns() // 1_000))
                self._batch.apply(published(observed, self._count))
                self._count += len(observed)
            now = self.answers()
            if now != answers:
                answers, since = now, time.time()
                continue
            found = [*sample_differences(answers, {name: rows(self._folder, name) for name in TABLES}, at(since))]
            if not found:
                return answers
            late = [one for one in found if one.collected_at and one.collected_at > at(since + ROUND_SECONDS)]
            assert not late, (what, late)
            assert time.monotonic() < deadline, (what, found)

    def until(self, holds: Callable[[dict[str, Any]], bool], what: str) -> list[dict[str, Any]]:
        """Wait until a position of a group is as it should be; return all that are."""
        deadline = time.monotonic() + PATIENCE
        while not (found := [row for row in self.rows("group_offsets") if holds(row)]):
            assert time.monotonic() < deadline, what
            observed = self.source.poll(Micros(time.time_ns() // 1_000))
            self._batch.apply(published(observed, self._count))
            self._count += len(observed)
        return found

    def rows(self, table: str) -> list[dict[str, Any]]:
        return rows(self._folder, table)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Three brokers with two log directories each."""
    root = tmp_path_factory.mktemp("odd")
    plan = planned(Shape(brokers=3, controllers=1), root)
    prompt = {**plan.properties, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    with Sandbox(replace(plan, properties=prompt), root / "sandbox") as sandbox:
        sandbox.admin.create_topic("orders", assignment=[[1, 2, 3], [2, 3, 1]])
        sandbox.admin.create_topic("compacted", assignment=[[3, 1, 2]], configs={"cleanup.policy": "compact"})
        yield sandbox


@pytest.fixture(scope="module")
def kafka(cluster: Sandbox) -> Iterator[KafkasAdmin]:
    with KafkasAdmin(cluster.bootstrap_servers) as kafka:
        yield kafka


@pytest.fixture
def sampled(cluster: Sandbox, kafka: KafkasAdmin, tmp_path: Path) -> Iterator[Sampled]:
    sampled = Sampled(cluster, tmp_path, kafka)
    with closing(sampled.source):
        yield sampled


def write(cluster: Sandbox, topic: str, records: int, record_bytes: int = 100) -> None:
    with TopicWriter(cluster.bootstrap_servers, topic, acks="all", record_bytes=record_bytes) as writer:
        wait_until(lambda: writer.delivered >= records, f"{records} records")


def commit(cluster: Sandbox, group: str, offsets: list[TopicPartition]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def is_committed() -> bool:
        named = [ConsumerGroupTopicPartitions(group, offsets)]
        (answer,) = admin.alter_consumer_group_offsets(named, request_timeout=10).values()
        return not answer.exception(30) and not any(one.error for one in answer.result().topic_partitions)

    wait_until(is_committed, f"{group[:20]} to commit")


def open_transactions(cluster: Sandbox, count: int, timeout_ms: int = 600_000) -> None:
    """Begin so many, whose producers never end them."""
    first = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "first"})
    first.init_transactions(60)  # who looks for a coordinator first has the topic of all created
    dial = dialer(Security())
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(closing(dial(address, response_seconds=10)))
            for address in parse_servers(cluster.bootstrap_servers)
        ]
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="orders", partitions=[0, 1])]
        for number in range(count):
            name = f"id-{number}"
            request = InitProducerIdRequest(version=2, transactional_id=name, transaction_timeout_ms=timeout_ms)
            init = answered(nodes, request, InitProducerIdResponse, lambda one: one.error_code)
            owner = {"transactional_id": name, "producer_id": init.producer_id, "producer_epoch": init.producer_epoch}
            add = AddPartitionsToTxnRequest(
                version=3, **{f"v3_and_below_{key}": value for key, value in owner.items()}, v3_and_below_topics=topics
            )
            answered(
                nodes,
                add,
                AddPartitionsToTxnResponse,
                lambda one: one.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
            )


def test_groups_with_odd_names_and_offsets_beyond_the_end(cluster: Sandbox, sampled: Sampled) -> None:
    write(cluster, "orders", 40)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for name in NAMES:
        beyond_end, inside, empty = ("orders", 0, 10_000), ("orders", 1, 3), ("compacted", 0, 0)
        commit(cluster, name, [TopicPartition(*each) for each in (beyond_end, inside, empty)])
    answers = sampled.equal("odd names")
    assert answers.groups.keys() == {*NAMES}
    beyond = [row for row in sampled.rows("group_offsets") if row["committed_offset"] == 10_000]
    assert len(beyond) == len(NAMES)
    assert {(row["lag"], row["records_lost"]) for row in beyond} == {(0, 0)}
    beyond = sampled.until(
        lambda row: row["committed_offset"] == 10_000 and bool(row["beyond"]), "an end that was read after the commit"
    )
    assert {row["beyond"] + row["high_watermark"] for row in beyond} == {10_000}
    for name in NAMES[:3]:
        admin.delete_consumer_groups([name])[name].result(30)
    assert sampled.equal("some are gone").groups.keys() == {*NAMES[3:]}


def test_a_replica_on_its_way_to_another_directory_is_counted_once(cluster: Sandbox, sampled: Sampled) -> None:
    write(cluster, "orders", 80, record_bytes=100_000)  # several fetches, behind the first of which the throttle acts
    throttle = "replica.alter.log.dirs.io.max.bytes.per.second"
    configure = ("kafka.admin.ConfigCommand", "--alter", "--entity-type", "brokers", "--entity-name", "1")
    cluster.run_tool(*configure, "--add-config", f"{throttle}=1000")
    before = sampled.equal("before it moves")
    at_first = next(
        path for (broker, path), one in before.directories.items() if broker == 1 and ("orders", 0) in one.sizes
    )
    other = next(path for broker, path in before.directories if broker == 1 and path != at_first)
    sampled.kafka.move("orders", 0, 1, other)
    moving = sampled.equal("it moves")
    hosted = {key: len(one.sizes) for key, one in moving.directories.items()}
    assert hosted == {key: len(one.sizes) for key, one in before.directories.items()}
    assert moving.directories[1, other].replica_bytes > before.directories[1, other].replica_bytes
    cluster.run_tool(*configure, "--delete-config", throttle)
    wait_until(lambda: ("orders", 0) in sampled.answers().directories[1, other].sizes, "it has moved", seconds=60)
    sampled.equal("it has moved")


def test_hundreds_of_open_transactions_are_all_there_and_gone_when_they_are_over(
    cluster: Sandbox, sampled: Sampled
) -> None:
    open_transactions(cluster, OPEN, timeout_ms=12_000)
    sampled.equal("all that are open")
    wait_until(lambda: not sampled.answers().transactions, "their time is over", seconds=60)
    assert sampled.equal("none is open").transactions == {}
    assert sampled.rows("transactions") == []


class Mixed(Sandbox):
    """A cluster that was formatted by an older version, which the last broker still has: the others are upgraded."""

    def _java(self, heap_megabytes: int, *, record: bool = False) -> list[str | Path]:
        java, *options = super()._java(heap_megabytes, record=record)
        return [java, *(each for each in options if not str(each).startswith("-XX:SharedArchiveFile"))]

    def launch(self, node: int) -> None:
        plan = self.plan
        if node != max(self.broker_ids):
            self.plan = replace(plan, version=DEFAULT)
        super().launch(node)
        self.plan = plan


@pytest.mark.parametrize("version", ["3.9", "3.6"])
def test_brokers_of_two_versions(version: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(Mixed(plan_cluster(brokers=3, version=version), tmp_path / "sandbox"))
        kafka = stack.enter_context(KafkasAdmin(cluster.bootstrap_servers))
        cluster.admin.create_topic("orders", assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        write(cluster, "orders", 30)
        commit(cluster, "before", [TopicPartition("orders", number, 2) for number in range(3)])
        open_transactions(cluster, 5)
        sampled = Sampled(cluster, tmp_path / "tables", kafka)
        stack.enter_context(closing(sampled.source))
        answers = sampled.equal("two versions")
        assert len(answers.transactions) == 5
        assert {row["broker"] for row in sampled.rows("broker_settings")} == {1, 2, 3}
