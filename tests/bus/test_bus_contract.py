"""What a bus promises, as a directory and with Kafka behind it.

Reading Kafka is reading the topics from their beginning, as who knows nothing yet. Deleting is the directory's alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from typing import Any

import pytest

from deploy.sandbox import Sandbox
from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.bus.kafka.shipper import Shipper
from streaming.contracts.codec import decode
from streaming.contracts.identifiers import BrokerId
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.samples import BrokerMetricObserved
from streaming.errors import IsrwatchError
from streaming.settings import KafkaBusSettings
from tests.bus.conftest import SEGMENT_BYTES, Heartbeats, payloads
from tests.plugins.kafka_bus import KafkaLogs, bus_settings

A = "poll:a"
REPLICATION = Channel.REPLICATION


class DirectoryBus:
    """Both ends of a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.reader = directory, DirectoryReader(directory)
        self.publisher = DirectoryPublisher(directory, segment_bytes=SEGMENT_BYTES, fsync=False)

    def payloads(self, channel: Channel = REPLICATION, source: str = A) -> list[bytes]:
        return payloads(self.directory, channel, source)

    def close(self) -> None:
        self.publisher.close()


class KafkaBus(DirectoryBus):
    """A directory, and who reads what was shipped of it."""

    def __init__(self, directory: Path, settings: KafkaBusSettings) -> None:
        super().__init__(directory)
        self._logs, self._shipper = KafkaLogs(settings), Shipper(directory, settings)
        assert self._shipper.lock()

    @property
    def reader(self) -> Any:
        while self._shipper.round():
            pass
        self._shipper.delete_shipped()
        return self._logs

    @reader.setter
    def reader(self, _: object) -> None:
        pass

    def payloads(self, channel: Channel = REPLICATION, source: str = A) -> list[bytes]:
        reader = self.reader
        return [each.payload for each in reader.read(channel, source, 0, reader.end_positions(channel)[source])]

    def close(self) -> None:
        super().close()
        self._shipper.close()


@pytest.fixture
def broker(kafka_single: Sandbox) -> Sandbox:
    return kafka_single


@pytest.fixture(params=["directory", pytest.param("kafka", marks=pytest.mark.kafka)])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A bus with small segments."""
    if request.param == "directory":
        made = DirectoryBus(tmp_path)
    else:
        made = KafkaBus(tmp_path, bus_settings(request.getfixturevalue("broker").bootstrap_servers))
    with closing(made):
        yield made


@pytest.fixture
def directory_bus(tmp_path: Path) -> Iterator[DirectoryBus]:
    with closing(DirectoryBus(tmp_path)) as made:
        yield made


def test_what_is_published_is_read_in_order_and_numbered_from_one(bus: Any, heartbeat: Heartbeats) -> None:
    bus.publisher.publish([heartbeat(1), heartbeat(2)])
    bus.publisher.publish([replace(heartbeat(3), sequence=99)])
    expected = [replace(heartbeat(moment), sequence=moment) for moment in (1, 2, 3)]
    assert expected == [decode(payload) for payload in bus.payloads()]


def test_every_source_and_every_channel_has_a_log_of_its_own(bus: Any, heartbeat: Heartbeats) -> None:
    metric = BrokerMetricObserved(
        cluster_id="c", cluster="prod", source=A, source_kind=SourceKind.NONE, broker=BrokerId(1), metric="m",
        metric_value=1.0, occurred_not_before=1, occurred_not_after=1, collected_at=1,
    )  # fmt: skip
    bus.publisher.publish([heartbeat(1), metric, heartbeat(2, source="../b/ß"), heartbeat(3)])
    assert sorted(bus.reader.logs(REPLICATION), reverse=True) == [A, "../b/ß"]
    assert bus.reader.logs(Channel.SAMPLES) == [A]
    assert [decode(payload).sequence for payload in bus.payloads()] == [1, 2]
    assert [decode(payload).sequence for payload in bus.payloads(source="../b/ß")] == [1]
    assert [replace(metric, sequence=1)] == [decode(payload) for payload in bus.payloads(Channel.SAMPLES)]


def test_an_empty_bus_has_no_logs_and_no_positions(bus: Any) -> None:
    bus.publisher.publish([])
    assert bus.reader.logs(REPLICATION) == []
    assert bus.reader.start_positions(REPLICATION) == {}
    assert bus.reader.end_positions(REPLICATION) == {}


def test_positions_grow_and_name_the_same_frames_for_ever(bus: Any, heartbeat: Heartbeats) -> None:
    ends = [0]
    for moment in range(1, 10):
        bus.publisher.publish([heartbeat(moment)])
        ends.append(bus.reader.end_positions(REPLICATION)[A])
    for number, (start, end) in enumerate(pairwise(ends), start=1):
        (frame,) = bus.reader.read(REPLICATION, A, start, end)
        assert (start, end) == (frame.position, frame.end)
        assert number == decode(frame.payload).sequence


def test_any_range_between_frames_gives_the_frames_within(bus: Any, heartbeat: Heartbeats) -> None:
    bus.publisher.publish([heartbeat(moment) for moment in range(1, 8)])
    frames = list(bus.reader.read(REPLICATION, A, 0, bus.reader.end_positions(REPLICATION)[A]))
    positions = [*(frame.position for frame in frames), frames[-1].end]
    for first, last in combinations_with_replacement(range(len(positions)), 2):
        assert frames[first:last] == list(bus.reader.read(REPLICATION, A, positions[first], positions[last]))


def test_raw_bytes_travel_as_they_are_and_take_no_number(bus: Any, heartbeat: Heartbeats) -> None:
    bus.publisher.publish([heartbeat(1)])
    bus.publisher.publish_raw(REPLICATION, A, b"\x00 anything")
    bus.publisher.publish([heartbeat(2)])
    first, raw, second = bus.payloads()
    assert raw == b"\x00 anything"
    assert [decode(first).sequence, decode(second).sequence] == [1, 2]


def publish_eleven(directory_bus: DirectoryBus, heartbeat: Heartbeats) -> int:
    """Publish heartbeats that fill several segments, and return where the log ends."""
    for moment in range(1, 12):
        directory_bus.publisher.publish([heartbeat(moment)])
    end: int = directory_bus.reader.end_positions(REPLICATION)[A]
    return end


def test_deleting_below_a_position_keeps_everything_from_there(
    directory_bus: DirectoryBus, heartbeat: Heartbeats
) -> None:
    end = publish_eleven(directory_bus, heartbeat)
    frames = [item for item in directory_bus.reader.read(REPLICATION, A, 0, end) if isinstance(item, BusFrame)]
    kept = frames[7].position
    directory_bus.reader.delete_below(REPLICATION, A, kept)
    assert 0 < directory_bus.reader.start_positions(REPLICATION)[A] <= kept
    assert frames[7:] == list(directory_bus.reader.read(REPLICATION, A, kept, end))
    assert end == directory_bus.reader.end_positions(REPLICATION)[A]


def test_reading_what_was_deleted_is_refused_in_words(directory_bus: DirectoryBus, heartbeat: Heartbeats) -> None:
    end = publish_eleven(directory_bus, heartbeat)
    directory_bus.reader.delete_below(REPLICATION, A, end)
    oldest = directory_bus.reader.start_positions(REPLICATION)[A]
    with pytest.raises(IsrwatchError, match=f"segments up to position {oldest} of replication/poll:a .*were deleted"):
        list(directory_bus.reader.read(REPLICATION, A, 0, end))


def test_deleting_everything_keeps_the_newest_and_the_count_goes_on(
    directory_bus: DirectoryBus, heartbeat: Heartbeats
) -> None:
    end = publish_eleven(directory_bus, heartbeat)
    directory_bus.reader.delete_below(REPLICATION, A, 10**9)
    directory_bus.publisher.publish([heartbeat(12)])
    (frame,) = directory_bus.reader.read(REPLICATION, A, end, directory_bus.reader.end_positions(REPLICATION)[A])
    assert decode(frame.payload).sequence == 12
