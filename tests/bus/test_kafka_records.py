"""One record of the bus in Kafka, without Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.bus.frames import MAX_PAYLOAD, BusFrame, DamagedRange
from streaming.bus.kafka.reader import Consumed, KafkaReader, TopicOffsets
from streaming.bus.kafka.records import (
    MOST_RUNS,
    cluster_id_in,
    collected_at,
    headers_of,
    key_of,
    partition_of,
    record_of,
)
from streaming.bus.kafka.topics import LARGEST_RECORD
from streaming.contracts.codec import encode
from streaming.contracts.observations import Channel
from streaming.settings import KafkaBusSettings
from tests.bus.conftest import Heartbeats

LOG_ID = 2**63 - 1
SOURCE = "metadata_log:collector-1"


def shipped_bytes(payload: bytes, limit: int) -> int:
    record = record_of(BusFrame(2**62, payload), LOG_ID, limit)
    headers = headers_of(SOURCE, record, [LOG_ID] * 100)
    return len(record.payload) + sum(len(name) + len(value) for name, value in headers) + len("cluster-id")


@given(st.integers(4_096, 50_000), st.integers(0, 60_000))
def test_no_record_is_larger_than_its_topic_takes(limit: int, size: int) -> None:
    assert shipped_bytes(b"x" * size, limit) <= limit


def test_a_record_that_is_too_large_is_cut_and_says_so() -> None:
    whole = record_of(BusFrame(7, b"x" * 1_000), LOG_ID, 4_096)
    assert (whole.payload, whole.damage) == (b"x" * 1_000, None)
    cut = record_of(BusFrame(7, b"x" * 5_000), LOG_ID, 4_096)
    assert cut.damage == "a record of 5000 bytes is larger than its topic takes (max.message.bytes 4096)"
    assert (cut.position, cut.end) == (7, BusFrame(7, b"x" * 5_000).end)


def test_our_own_topics_take_whatever_the_directory_takes() -> None:
    assert record_of(BusFrame(0, b"x" * MAX_PAYLOAD), LOG_ID, LARGEST_RECORD).damage is None


def test_damage_travels_as_damage() -> None:
    record = record_of(DamagedRange(10, b"raw", "checksum mismatch", 40), LOG_ID, 4_096)
    headers = dict(headers_of(SOURCE, record, [LOG_ID]))
    assert (headers["damage"], headers["position"], headers["end"]) == (b"checksum mismatch", b"10", b"40")


def test_only_the_newest_runs_are_named() -> None:
    record = record_of(BusFrame(0, b""), LOG_ID, 4_096)
    headers = dict(headers_of(SOURCE, record, [*range(100)]))
    assert headers["runs"].split(b",") == [b"%d" % run for run in range(100 - MOST_RUNS, 100)]


def test_the_sources_of_a_cluster_share_a_partition_and_a_log_of_samples_has_one(heartbeat: Heartbeats) -> None:
    cluster = cluster_id_in([b"no observation", encode(heartbeat(5))])
    assert cluster == "c"
    keys = {key_of(source, cluster) for source in ("metadata_log:a", "admin:a", "samples:b")}
    assert keys == {"c"}
    assert key_of("admin:a", cluster_id_in([b"\x00"])) == "admin:a"
    assert {partition_of(f"key-{number}", 6) for number in range(100)} == set(range(6))


def test_the_age_of_a_record_is_what_it_says_itself(heartbeat: Heartbeats) -> None:
    assert collected_at(encode(heartbeat(1_234))) == 1_234
    assert collected_at(b"\x00") is None


def test_a_topic_of_which_nothing_was_read_says_how_many_records_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = TopicOffsets("id", {0: 0, 1: 0}, {0: 42, 1: 5})
    monkeypatch.setattr(KafkaReader, "look", lambda *_: ends)
    monkeypatch.setattr("streaming.bus.kafka.reader.ensure", lambda *_: None)
    reader = KafkaReader(KafkaBusSettings(bootstrap_servers="127.0.0.1:1"))
    reader.start(Channel.REPLICATION, lambda name: 40 if name.endswith("0") else 5)
    assert reader.unread(Channel.REPLICATION) == 2
    reader.note(Channel.REPLICATION, {"a": Consumed(0, 41)}, {0: 41}, 1, 100)
    assert reader.unread(Channel.REPLICATION) == 0, "its logs say how far they are behind"


@pytest.mark.parametrize(("identity", "start"), [("", 7), ("id", 85)])
def test_a_topic_without_an_id_that_ends_before_what_was_applied_is_another_one(
    identity: str, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Kafka 2.8 a topic has none. With one, its brokers have lost records: the others were applied."""
    said: list[str] = []
    monkeypatch.setattr(KafkaReader, "look", lambda *_: TopicOffsets(identity, {0: 7, 1: 7}, {0: 85, 1: 100}))
    monkeypatch.setattr("streaming.bus.kafka.reader.ensure", lambda *_: None)
    reader = KafkaReader(KafkaBusSettings(bootstrap_servers="127.0.0.1:1"), said.append)
    assert reader.start(Channel.REPLICATION, lambda _: 100) == {0: start, 1: 100}
    assert len(said) == 1
