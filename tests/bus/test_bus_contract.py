"""What a bus promises."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, pairwise
from typing import Any

import pytest

from streaming.bus.frames import BusFrame
from streaming.contracts.codec import decode
from streaming.contracts.identifiers import BrokerId
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.samples import BrokerMetricObserved
from streaming.errors import IsrwatchError
from tests.bus.conftest import Heartbeats, payloads

A = "poll:a"
REPLICATION = Channel.REPLICATION


def test_what_is_published_is_read_in_order_and_numbered_from_one(bus: Any, heartbeat: Heartbeats) -> None:
    bus.publisher.publish([heartbeat(1), heartbeat(2)])
    bus.publisher.publish([replace(heartbeat(3), sequence=99)])
    expected = [replace(heartbeat(moment), sequence=moment) for moment in (1, 2, 3)]
    assert expected == [decode(payload) for payload in payloads(bus.directory)]


def test_every_source_and_every_channel_has_a_log_of_its_own(bus: Any, heartbeat: Heartbeats) -> None:
    metric = BrokerMetricObserved(
        cluster_id="c", cluster="prod", source=A, authority=SourceKind.NONE, broker=BrokerId(1), metric="m",
        metric_value=1.0, occurred_not_before=1, occurred_not_after=1, collected_at=1,
    )  # fmt: skip
    bus.publisher.publish([heartbeat(1), metric, heartbeat(2, source="../b/ß"), heartbeat(3)])
    assert sorted(bus.reader.logs(REPLICATION), reverse=True) == [A, "../b/ß"]
    assert bus.reader.logs(Channel.METRICS) == [A]
    assert bus.reader.logs(Channel.OFFSETS) == []
    assert [decode(payload).sequence for payload in payloads(bus.directory)] == [1, 2]
    assert [decode(payload).sequence for payload in payloads(bus.directory, source="../b/ß")] == [1]
    assert [replace(metric, sequence=1)] == [decode(payload) for payload in payloads(bus.directory, Channel.METRICS)]


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
    first, raw, second = payloads(bus.directory)
    assert raw == b"\x00 anything"
    assert [decode(first).sequence, decode(second).sequence] == [1, 2]


def publish_eleven(bus: Any, heartbeat: Heartbeats) -> int:
    """Publish heartbeats that fill several segments, and return where the log ends."""
    for moment in range(1, 12):
        bus.publisher.publish([heartbeat(moment)])
    end: int = bus.reader.end_positions(REPLICATION)[A]
    return end


def test_deleting_below_a_position_keeps_everything_from_there(bus: Any, heartbeat: Heartbeats) -> None:
    end = publish_eleven(bus, heartbeat)
    frames = [item for item in bus.reader.read(REPLICATION, A, 0, end) if isinstance(item, BusFrame)]
    kept = frames[7].position
    bus.reader.delete_below(REPLICATION, A, kept)
    assert 0 < bus.reader.start_positions(REPLICATION)[A] <= kept
    assert frames[7:] == list(bus.reader.read(REPLICATION, A, kept, end))
    assert end == bus.reader.end_positions(REPLICATION)[A]


def test_reading_what_was_deleted_is_refused_in_words(bus: Any, heartbeat: Heartbeats) -> None:
    end = publish_eleven(bus, heartbeat)
    bus.reader.delete_below(REPLICATION, A, end)
    oldest = bus.reader.start_positions(REPLICATION)[A]
    with pytest.raises(IsrwatchError, match=f"segments up to position {oldest} of replication/poll:a .*were deleted"):
        list(bus.reader.read(REPLICATION, A, 0, end))


def test_deleting_everything_keeps_the_newest_and_the_count_goes_on(bus: Any, heartbeat: Heartbeats) -> None:
    end = publish_eleven(bus, heartbeat)
    bus.reader.delete_below(REPLICATION, A, 10**9)
    bus.publisher.publish([heartbeat(12)])
    (frame,) = bus.reader.read(REPLICATION, A, end, bus.reader.end_positions(REPLICATION)[A])
    assert decode(frame.payload).sequence == 12
