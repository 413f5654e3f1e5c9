"""A bus of Kafka in tests: topics of their own on a cluster of the sandbox, and what stands in them."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streaming.bus.frames import BusFrame
from streaming.bus.kafka.records import topic_of
from streaming.bus.kafka.topics import administrator, described
from streaming.contracts.observations import Channel
from streaming.settings import KafkaBusSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 30.0


class Stored(NamedTuple):
    """One record of a topic, as whoever reads it sees it."""

    source: str
    channel: str
    position: int
    end: int
    log_id: int
    runs: tuple[int, ...]
    damage: str | None
    payload: bytes
    key: str
    partition: int


def bus_settings(bootstrap_servers: str, **changed: object) -> KafkaBusSettings:
    """Name topics that no other test has, for one broker unless told otherwise."""
    name = f"t{time.monotonic_ns()}"
    few = KafkaBusSettings(
        bootstrap_servers=bootstrap_servers,
        replication_topic=f"{name}.replication",
        samples_topic=f"{name}.samples",
        replication_partitions=2,
        samples_partitions=3,
        replication_factor=1,
        min_insync_replicas=1,
    )
    return replace(few, **changed)  # type: ignore[arg-type]


def stored(settings: KafkaBusSettings, channel: Channel | None = None) -> list[Stored]:
    """Read the topics from their beginning to their end; records of one partition are in their order."""
    consumer = Consumer({
        "bootstrap.servers": settings.bootstrap_servers,
        "group.id": "none",
        "enable.auto.commit": False,
        "enable.partition.eof": False,
        "fetch.wait.max.ms": 10,
    })  # fmt: skip
    try:
        found = [*_records(consumer, settings)]
    finally:
        consumer.close()
    return [each for each in found if channel in (None, each.channel)]


def _watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Return where a partition begins and ends, once its leader knows that it leads: the topic may be new."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return consumer.get_watermark_offsets(partition, timeout=SECONDS)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _records(consumer: Consumer, settings: KafkaBusSettings) -> Iterator[Stored]:
    left: dict[tuple[str, int], int] = {}
    assigned = []
    for topic in described(administrator(settings), settings).values():
        for partition in range(topic.partitions):
            low, high = _watermarks(consumer, TopicPartition(topic.name, partition))
            if low < high:
                left[topic.name, partition] = high
                assigned.append(TopicPartition(topic.name, partition, low))
    consumer.assign(assigned)
    deadline = time.monotonic() + SECONDS
    while left:
        message = consumer.poll(1.0)
        assert time.monotonic() < deadline, left
        if message is None or message.error():
            continue
        place = message.topic(), message.partition()
        if message.offset() + 1 >= left.get(place, 0):
            left.pop(place, None)
        headers = {name: value.decode() for name, value in message.headers() or []}
        yield Stored(
            headers["source"],
            next(channel for channel in Channel if topic_of(settings, channel) == message.topic()),
            int(headers["position"]),
            int(headers["end"]),
            int(headers["log_id"]),
            tuple(int(run) for run in headers["runs"].split(",")),
            headers.get("damage"),
            message.value() or b"",
            (message.key() or b"").decode(),
            message.partition(),
        )


class KafkaLogs:
    """What a reader that knows nothing yet makes of the topics: each position of a log once."""

    def __init__(self, settings: KafkaBusSettings) -> None:
        self._settings = settings

    def _frames(self, channel: Channel) -> dict[str, dict[int, Stored]]:
        logs: defaultdict[str, dict[int, Stored]] = defaultdict(dict)
        for each in stored(self._settings, channel):
            logs[each.source].setdefault(each.position, each)
        return logs

    def logs(self, channel: Channel) -> list[str]:
        return sorted(self._frames(channel))

    def start_positions(self, channel: Channel) -> dict[str, int]:
        return {source: min(frames) for source, frames in self._frames(channel).items()}

    def end_positions(self, channel: Channel) -> dict[str, int]:
        return {source: max(each.end for each in frames.values()) for source, frames in self._frames(channel).items()}

    def read(self, channel: Channel, source: str, start: int, end: int) -> list[BusFrame]:
        frames = self._frames(channel)[source]
        return [BusFrame(at, each.payload) for at, each in sorted(frames.items()) if start <= at < end]
