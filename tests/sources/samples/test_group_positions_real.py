"""Positions of groups of a real cluster: left and drained topics, markers, consumers without membership, no commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.sandbox import Sandbox, wait_until
from streaming.contracts.group_positions import CLOCKS_DIFFER
from streaming.contracts.group_readers import STANDING, GroupOffsetsRow, PartitionReader, is_stuck, reader_of
from streaming.contracts.identifiers import Micros
from streaming.sources.samples.groups import readable
from tests.chaos_kafka.answers import KafkasAdmin
from tests.chaos_kafka.schedule import Shape
from tests.chaos_kafka.stage import planned
from tests.sources.samples.test_odd_clusters_real import Sampled, commit

pytestmark = [pytest.mark.kafka, pytest.mark.long]
TOPICS = ("stays", "left", "drained", "marked", "assigned", "new", "aborted", "markers", "plain", "purged")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    root = tmp_path_factory.mktemp("positions")
    with Sandbox(planned(Shape(brokers=1, controllers=1), root), root / "sandbox") as sandbox:
        for topic in TOPICS:
            sandbox.admin.create_topic(topic, assignment=[[1]])
        yield sandbox


@pytest.fixture(scope="module")
def sampled(cluster: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sampled]:
    with KafkasAdmin(cluster.bootstrap_servers) as kafka:
        sampled = Sampled(cluster, tmp_path_factory.mktemp("tables"), kafka)
        with closing(sampled.source):
            yield sampled


def write(
    cluster: Sandbox, topic: str, count: int, transactional_id: str | None = None, *, is_aborted: bool = False
) -> None:
    more = {} if transactional_id is None else {"transactional.id": transactional_id}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **more})
    if transactional_id is not None:
        producer.init_transactions()
        producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b"record", partition=0)
    if transactional_id is not None:
        producer.flush(30)
        (producer.abort_transaction if is_aborted else producer.commit_transaction)(30)
    assert producer.flush(30) == 0


def member(cluster: Sandbox, group: str, *topics: str) -> Consumer:
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "client.id": "app-7",
        "enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.subscribe([*topics])
    wait_until(lambda: consumer.poll(0.2) is None and len(consumer.assignment()) == len(topics), "its assignment")
    return consumer


def row_of(sampled: Sampled, group: str, topic: str, **columns: Any) -> GroupOffsetsRow:
    """Wait until the newest row of a group in a topic has these values."""
    expected = {"group": group, "topic": topic, **columns}
    (row,) = sampled.until(lambda row: all(row[name] == value for name, value in expected.items()), str(expected))
    return as_row(row)


def as_row(row: dict[str, Any]) -> GroupOffsetsRow:
    micros = {name: round(value.timestamp() * 1e6) for name, value in row.items() if hasattr(value, "timestamp")}
    return GroupOffsetsRow.of(row | micros)


def test_a_topic_that_a_living_group_left_is_read_no_more_and_the_others_are(
    cluster: Sandbox, sampled: Sampled
) -> None:
    for topic in ("stays", "left"):
        write(cluster, topic, 20)
    commit(cluster, "g", [TopicPartition(topic, 0, 10) for topic in ("stays", "left")])
    with closing(member(cluster, "g", "stays", "left")):
        for topic in ("stays", "left"):
            assert reader_of(row_of(sampled, "g", topic, member="app-7", lag=10)) is PartitionReader.OWNER
    with closing(member(cluster, "g", "stays")):
        assert reader_of(row_of(sampled, "g", "stays", member="app-7", group_state="Stable")) is PartitionReader.OWNER
        assert reader_of(row_of(sampled, "g", "left", member=None, group_state="Stable")) is PartitionReader.NONE


def test_a_drained_topic_has_no_lag_and_one_loss(cluster: Sandbox, sampled: Sampled) -> None:
    write(cluster, "drained", 100)
    commit(cluster, "drains", [TopicPartition("drained", 0, 10)])
    assert row_of(sampled, "drains", "drained", lag=90, records_lost=0).lost_at is None
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition("drained", 0, 100)]).values()
    deleted.result(30)
    row = row_of(sampled, "drains", "drained", log_start_offset=100)
    assert (row.lag, row.records_lost, row.lag_seconds, row.standing_since) == (0, 90, 0.0, None)
    assert row.lost_at == row.collected_at


def test_what_is_purged_up_to_offsets_of_a_transaction_that_ends_later_is_not_lost(
    cluster: Sandbox, sampled: Sampled
) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    write(cluster, "purged", 100)
    commit(cluster, "purges", [TopicPartition("purged", 0, 10)])
    assert row_of(sampled, "purges", "purged", lag=90).records_lost == 0
    admin, producer = AdminClient(servers), Producer(servers | {"transactional.id": "purges"})
    producer.init_transactions(30)
    producer.begin_transaction()
    with closing(Consumer(servers | {"group.id": "purges"})) as consumer:
        read = [TopicPartition("purged", 0, 100)]
        producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), 30)
        (deleted,) = admin.delete_records(read).values()
        deleted.result(30)
        commit(cluster, "follows", read)
        row_of(sampled, "follows", "purged", log_start_offset=100, committed_offset=100)
        producer.commit_transaction(30)
    row = row_of(sampled, "purges", "purged", log_start_offset=100, committed_offset=100)
    assert (row.lag, row.records_lost, row.lost_at) == (0, 0, None)


def test_the_marker_of_a_transaction_is_an_offset_and_no_record(cluster: Sandbox, sampled: Sampled) -> None:
    write(cluster, "marked", 1, "tx")
    commit(cluster, "marks", [TopicPartition("marked", 0, 1)])
    row = row_of(sampled, "marks", "marked", lag=1)
    assert (row.high_watermark, row.stable_lag, row.beyond) == (2, 1, 0)


def test_a_consumer_without_membership_is_read_by_its_commits(cluster: Sandbox, sampled: Sampled) -> None:
    write(cluster, "assigned", 100)
    for offset in (5, 10, 20):
        commit(cluster, "flink", [TopicPartition("assigned", 0, offset)])
        row = row_of(sampled, "flink", "assigned", committed_offset=offset)
        if offset == 10:
            assert reader_of(row) is PartitionReader.NONE, "an operator may have set it"
    assert (reader_of(row), row.committed_at, row.lag) == (PartitionReader.COMMITS, row.collected_at, 80)


def test_an_owner_that_never_committed_has_no_lag_and_no_loss(cluster: Sandbox, sampled: Sampled) -> None:
    write(cluster, "new", 10)
    with closing(member(cluster, "starts", "new")):
        row = row_of(sampled, "starts", "new", member="app-7")
        assert reader_of(row) is PartitionReader.UNCOMMITTED
        assert (row.lag, row.records_lost, row.beyond, row.lag_seconds) == (None, None, None, None)


@pytest.fixture
def asked_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readable, "STANDS", Micros(CLOCKS_DIFFER + 1_000_000))


def is_stuck_later(row: GroupOffsetsRow) -> bool | None:
    """Whether the group is stuck once it has stood still for long enough; False where nothing need be there."""
    since = row.collected_at - STANDING
    proven_at = None if row.readable_at is None else since
    return row.standing_since is not None and is_stuck(row._replace(standing_since=since, readable_at=proven_at))


class Reads:
    """The newest row of a group that has a member in a topic of its own; each is a later one."""

    def __init__(self, sampled: Sampled, topic: str) -> None:
        self._sampled, self._topic, self._after = sampled, topic, datetime.min.replace(tzinfo=UTC)

    def row(self, **columns: Any) -> GroupOffsetsRow:
        expected = {"group": f"reads {self._topic}", "member": "app-7", **columns}

        def is_later(row: dict[str, Any]) -> bool:
            return row["collected_at"] > self._after and all(row[name] == value for name, value in expected.items())

        (row,) = self._sampled.until(is_later, str(expected))
        self._after = row["collected_at"]
        return as_row(row)

    def until_stuck(self, write: Callable[[], None]) -> GroupOffsetsRow:
        """Write something before each round until the group is stuck there, later."""
        deadline = time.monotonic() + 60
        while not is_stuck_later(row := self.row()):
            assert time.monotonic() < deadline, row
            write()
        return row


@pytest.mark.usefixtures("asked_soon")
def test_a_group_that_commits_by_record_is_stuck_behind_committed_transactions_and_not_behind_aborted_ones(
    cluster: Sandbox, sampled: Sampled
) -> None:
    with closing(member(cluster, "reads aborted", "aborted")) as consumer:
        write(cluster, "aborted", 1, "writes")
        consumer.commit(offsets=[TopicPartition("aborted", 0, 1)], asynchronous=False)
        for _ in range(10):
            write(cluster, "aborted", 3, "writes", is_aborted=True)
        reads = Reads(sampled, "aborted")
        reads.row(is_transactional=True, stable_lag=1 + 10 * 4)
        for _ in range(8):
            row = reads.row()
            assert (row.standing_since is not None, row.readable_at, is_stuck_later(row)) == (True, None, None)
        reads.until_stuck(lambda: write(cluster, "aborted", 1, "writes"))
        write(cluster, "aborted", 3, "writes", is_aborted=True)
        for _ in range(5):
            assert is_stuck_later(reads.row()), "what was committed is there"


@pytest.mark.usefixtures("asked_soon")
def test_markers_of_several_producers_are_nothing_to_read(cluster: Sandbox, sampled: Sampled) -> None:
    with closing(member(cluster, "reads markers", "markers")) as consumer:
        producers = [
            Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"writer-{number}"})
            for number in range(3)
        ]
        for producer in producers:
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce("markers", b"record", partition=0)
            producer.flush(30)
        for producer in producers:
            producer.commit_transaction(30)
        consumer.commit(offsets=[TopicPartition("markers", 0, 3)], asynchronous=False)
        row = Reads(sampled, "markers").row(is_transactional=True, committed_offset=3)
        assert (row.stable_lag, row.standing_since is not None, is_stuck_later(row)) == (3, True, None)


@pytest.mark.usefixtures("asked_soon")
def test_where_nobody_writes_transactions_whatever_is_there_can_be_read(cluster: Sandbox, sampled: Sampled) -> None:
    with closing(member(cluster, "reads plain", "plain")) as consumer:
        consumer.commit(offsets=[TopicPartition("plain", 0, 0)], asynchronous=False)
        row = Reads(sampled, "plain").until_stuck(lambda: write(cluster, "plain", 1))
        assert (row.is_transactional, row.readable_at is not None) == (False, True)
