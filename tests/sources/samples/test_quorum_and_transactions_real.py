"""Quorum and transactions of a real cluster are what Kafka's own tools say.

The leaders do not ask the coordinator whether a transaction is open (``transaction.partition.verification.enable``), as
before Kafka 3.6: so a transaction can be left hanging. Coordinators do not end what is late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer

from deploy.sandbox import Sandbox, plan_cluster
from deploy.sandbox.plan import random_id
from streaming.contracts.health import is_late
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Observation
from streaming.contracts.samples import QuorumMemberObserved, TransactionObserved
from streaming.errors import ConnectionRefused
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.kind import Kind
from streaming.sources.samples.offsets import OffsetsKind
from streaming.sources.samples.quorum import QuorumKind
from streaming.sources.samples.transactions import TransactionsKind
from tests.sources.samples.late_producer import leave_hanging
from tests.sources.samples.opened import open_samples

pytestmark = [pytest.mark.kafka, pytest.mark.long]

T = TypeVar("T")
ROUND = Micros(500_000)
PATIENCE = 60.0
TRANSACTIONS = "TransactionsCommand"
CONFIG = {
    "transaction.partition.verification.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    "metadata.max.idle.interval.ms": "0",  # the metadata log rests
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Three brokers with two log directories each."""
    root = tmp_path_factory.mktemp("cluster")
    second = tmp_path_factory.mktemp("second")
    own = {node: {"log.dirs": f"{root / f'node-{node}' / 'data'},{second / str(node)}"} for node in (1, 2, 3)}
    plan = plan_cluster(brokers=3, properties=CONFIG, node_properties=own)
    for node in own:
        disk = second / str(node)
        disk.mkdir()
        of_disk = {"version": 1, "cluster.id": plan.cluster_id, "node.id": node, "directory.id": random_id()}
        (disk / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in of_disk.items()))
    with Sandbox(plan, root) as sandbox:
        sandbox.admin.create_topic("orders", assignment=[[1, 2, 3], [2, 1, 3]])
        for number in (1, 2):
            sandbox.admin.create_topic(f"hung-{number}", assignment=[[1, 2, 3]])
        yield sandbox


class Sampling(threading.Thread):
    """Keeps all samples, and what is refused."""

    def __init__(self, cluster: Sandbox) -> None:
        super().__init__(name="sampling")
        self.samples: list[Observation] = []
        self.refused: list[str] = []
        self._ended = threading.Event()
        self._source = open_samples(cluster.bootstrap_servers, _kinds, ROUND, seconds=2.0)

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self.samples += self._source.poll(Micros(time.time_ns() // 1000))
            except ConnectionRefused as refusal:
                self.refused.append(repr(refusal))

    def end(self) -> None:
        self._ended.set()
        self.join()
        self._source.close()

    def since(self, kind: type[T], moment: float) -> list[T]:
        """The samples of a kind that were asked for after a moment."""
        after = moment * 1_000_000
        return [one for one in [*self.samples] if isinstance(one, kind) and one.occurred_not_before > after]

    def names(self, moment: float) -> set[str]:
        """The transactions that were asked for after a moment: their ids, or the partitions where they hang."""
        found = self.since(TransactionObserved, moment)
        return {one.transactional_id or ",".join(one.transaction_partitions) for one in found}


def _kinds() -> Sequence[Kind]:
    offsets = OffsetsKind(ROUND, DirectoriesKind(ROUND))
    held = TransactionsKind(ROUND, offsets.held, held_micros=ROUND)
    return offsets, QuorumKind(ROUND), held


@pytest.fixture
def sampling(cluster: Sandbox) -> Iterator[Sampling]:
    sampling = Sampling(cluster)
    sampling.start()
    yield sampling
    sampling.end()
    assert sampling.refused == []


def until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def tool(cluster: Sandbox, name: str, *arguments: str) -> str:
    """Run a tool that takes the servers before its subcommand."""
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    return cluster.run_tool(f"org.apache.kafka.tools.{name}", *servers, *arguments)


def table(printed: str) -> list[dict[str, str]]:
    """What one of Kafka's tools prints as a table with a tab between its columns."""
    heading, *lines = (line for line in printed.splitlines() if "\t" in line)
    names = [name.strip() for name in heading.split("\t")]
    return [dict(zip(names, map(str.strip, line.split("\t")), strict=False)) for line in lines]


class Writers:
    """Producers with a transaction each; those that are still open are aborted at the end."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._open: dict[str, Producer] = {}

    def begin(self, transactional_id: str, topic: str = "orders", *, timeout_ms: int = 60_000) -> None:
        settings = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms, "log_level": 2}
        producer = Producer({"bootstrap.servers": self._servers, **settings})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        for number in (0, 1):
            producer.produce(topic, b"v", partition=number)
        producer.flush(PATIENCE)
        self._open[transactional_id] = producer

    def commit(self, transactional_id: str) -> None:
        self._open.pop(transactional_id).commit_transaction(PATIENCE)

    def end(self) -> None:
        for producer in self._open.values():
            producer.abort_transaction(PATIENCE)


@pytest.fixture
def writers(cluster: Sandbox) -> Iterator[Writers]:
    writers = Writers(cluster.bootstrap_servers)
    yield writers
    writers.end()


def test_the_quorum_is_as_kafka_metadata_quorum_says(cluster: Sandbox, sampling: Sampling) -> None:
    def said() -> dict[int, tuple[str, ...]]:
        printed = table(tool(cluster, "MetadataQuorumCommand", "describe", "--replication"))
        return {int(row["NodeId"]): (row["LogEndOffset"], row["Lag"], row["Status"]) for row in printed}

    before = said()
    began = time.time()
    until(lambda: len(sampling.since(QuorumMemberObserved, began)) >= 4, "a round of the quorum")
    members = sampling.since(QuorumMemberObserved, began)[:4]
    assert said() == before, "the metadata log rests"
    end = max(one.log_end_offset or 0 for one in members)
    assert {
        one.node: (
            str(one.log_end_offset),
            str(end - (one.log_end_offset or 0)),
            "Leader" if one.node == one.controller else "Follower" if one.is_voter else "Observer",
        )
        for one in members
    } == before
    assert {(one.controller, one.high_watermark) for one in members} == {(101, end)}
    assert all(began - 5 < (one.last_caught_up_at or 0) / 1e6 < time.time() for one in members)


def test_transactions_are_as_kafka_transactions_says(cluster: Sandbox, sampling: Sampling, writers: Writers) -> None:
    writers.begin("open-1")
    writers.begin("late-1", timeout_ms=1_000)
    left = leave_hanging(cluster.bootstrap_servers, "hanging-1", "hung-1")
    assert left.error == 0
    began = time.time() + 1
    until(lambda: {"open-1", "late-1", "hung-1-0"} <= sampling.names(began), "all three")
    newest = {one.producer_id: one for one in sampling.since(TransactionObserved, began)}
    opened = {one.transactional_id: one for one in newest.values() if one.transactional_id is not None}
    assert opened.keys() == {"open-1", "late-1"}

    listed = {row["TransactionalId"]: row for row in table(tool(cluster, TRANSACTIONS, "list"))}
    assert listed["hanging-1"]["TransactionState"] == "CompleteAbort", "its coordinator knows of nothing open"
    for name, one in opened.items():
        assert name is not None
        (described,) = table(tool(cluster, TRANSACTIONS, "describe", "--transactional-id", name))
        state = (listed[name]["TransactionState"], listed[name]["ProducerId"])
        assert state == (one.transaction_state, str(one.producer_id))
        assert {
            "CoordinatorId": str(one.coordinator),
            "ProducerId": str(one.producer_id),
            "ProducerEpoch": str(one.producer_epoch),
            "TransactionState": one.transaction_state,
            "TransactionTimeoutMs": str(one.timeout_ms),
            "CurrentTransactionStartTimeMs": str((one.started_at or 0) // 1000),
        }.items() <= described.items()
        partitions = {*described["TopicPartitions"].split(",")}
        assert partitions == {*one.transaction_partitions} == {"orders-0", "orders-1"}
        assert not one.is_hanging
        assert is_late(one.started_at, one.timeout_ms, one.collected_at) == (name == "late-1")

    (hanging,) = (one for one in newest.values() if one.transaction_partitions == ("hung-1-0",))
    assert hanging.is_hanging
    found = table(tool(cluster, TRANSACTIONS, "find-hanging", "--topic", "hung-1", "--max-transaction-timeout", "0"))
    assert [(row["Topic"], row["Partition"], row["ProducerId"], row["ProducerEpoch"]) for row in found] == [
        ("hung-1", "0", str(hanging.producer_id), str(hanging.producer_epoch))
    ]
    assert (hanging.producer_id, hanging.producer_epoch) == (left.producer_id, left.producer_epoch)


def test_what_is_committed_or_aborted_by_an_administrator_is_not_reported_again(
    cluster: Sandbox, sampling: Sampling, writers: Writers
) -> None:
    writers.begin("short-1")
    leave_hanging(cluster.bootstrap_servers, "hanging-2", "hung-2")
    began = time.time()
    until(lambda: {"short-1", "hung-2-0"} <= sampling.names(began), "both")
    writers.commit("short-1")
    at = ("--topic", "hung-2", "--partition", "0")
    (found,) = table(tool(cluster, TRANSACTIONS, "find-hanging", *at, "--max-transaction-timeout", "0"))
    tool(cluster, TRANSACTIONS, "abort", *at, "--start-offset", found["StartOffset"])
    ended = time.time() + ROUND / 1_000_000
    time.sleep(2)  # three rounds
    assert not sampling.names(ended) & {"short-1", "hung-2-0"}
