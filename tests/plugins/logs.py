"""Logs of a directory bus: as rows, as Spark's workers give them to a batch, and where they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.bus.directory import DirectoryReader
from streaming.bus.frames import BusFrame
from streaming.contracts.observations import Channel
from streaming.jobs.streams.bus_source import arrow_batches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa


def rows_of_log(
    bus: DirectoryReader, channel: Channel, source: str, start: int = 0, end: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a log from a position, or from its oldest one, to another or its end, with their log ids."""
    end = bus.end_positions(channel)[source] if end is None else end
    for segment in bus.segments(channel, source):
        lower, upper = max(start, segment.base), min(segment.limit, end)
        if lower < upper:
            yield from arrow_batches(source, bus.read(channel, source, lower, upper), segment.log_id)


def last_positions(bus: Path) -> dict[tuple[Channel, str], int]:
    """Give the position of the last record of each log of a directory."""
    reader, found = DirectoryReader(bus), {}
    for channel in Channel:
        starts = reader.start_positions(channel)
        for source, end in reader.end_positions(channel).items():
            items = reader.read(channel, source, starts[source], end)
            found[channel, source] = max(item.position for item in items if isinstance(item, BusFrame))
    return found
