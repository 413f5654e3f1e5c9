"""A bus to test, and observations to publish on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel, Heartbeat, SourceKind

Heartbeats = Callable[..., Heartbeat]

SEGMENT_BYTES = 600  # two or three heartbeats


def payloads(directory: Path, channel: Channel = Channel.REPLICATION, source: str = "poll:a") -> list[bytes]:
    """Read what is there of a log, with a reader that has seen nothing before; it must be whole."""
    reader = DirectoryReader(directory)
    start, end = reader.start_positions(channel)[source], reader.end_positions(channel)[source]
    items = list(reader.read(channel, source, start, end))
    assert all(isinstance(item, BusFrame) for item in items), items
    return [item.payload for item in items if isinstance(item, BusFrame)]


@dataclass(frozen=True)
class Bus:
    """Both ends of a bus."""

    directory: Path
    publisher: DirectoryPublisher
    reader: DirectoryReader


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    """A bus with small segments."""
    with closing(DirectoryPublisher(tmp_path, segment_bytes=SEGMENT_BYTES, fsync=False)) as publisher:
        yield Bus(tmp_path, publisher, DirectoryReader(tmp_path))


@pytest.fixture(scope="session")
def heartbeat() -> Heartbeats:
    """Make heartbeats that differ by their time."""

    def make(moment: int, source: str = "poll:a") -> Heartbeat:
        time: Micros = moment  # type: ignore[assignment]
        return Heartbeat(
            cluster_id="c", cluster="prod", source=source, source_kind=SourceKind.POLL,
            occurred_not_before=time, occurred_not_after=time, collected_at=time,
        )  # fmt: skip

    return make
