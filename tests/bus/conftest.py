"""A bus to test, and observations to publish on them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.contracts.observations import Channel, Heartbeat, SourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streaming.contracts.identifiers import Micros

    Heartbeats = Callable[..., Heartbeat]

SEGMENT_BYTES = 600  # two or three heartbeats


@dataclass(frozen=True)
class Bus:
    """Both ends of a bus."""

    publisher: DirectoryPublisher
    reader: DirectoryReader

    def payloads(self, channel: Channel, source: str) -> list[bytes]:
        """Read a whole log, which must be whole."""
        start, end = self.reader.start_positions(channel)[source], self.reader.end_positions(channel)[source]
        items = list(self.reader.read(channel, source, start, end))
        assert all(hasattr(item, "payload") for item in items), items
        return [item.payload for item in items if hasattr(item, "payload")]


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    """A bus with small segments."""
    with closing(DirectoryPublisher(tmp_path, segment_bytes=SEGMENT_BYTES, fsync=False)) as publisher:
        yield Bus(publisher, DirectoryReader(tmp_path))


@pytest.fixture(scope="session")
def heartbeat() -> Heartbeats:
    """Make heartbeats that differ by their time."""

    def make(moment: int, source: str = "poll:a") -> Heartbeat:
        time: Micros = moment  # type: ignore[assignment]
        return Heartbeat(
            cluster_id="c", cluster="prod", source=source, authority=SourceKind.POLL,
            occurred_not_before=time, occurred_not_after=time, collected_at=time,
        )  # fmt: skip

    return make
