"""What Spark's workers give to a batch, without Spark: a log of the bus as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.jobs.streams.bus_source import arrow_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streaming.bus.directory import DirectoryReader
    from streaming.contracts.observations import Channel


def rows_of_log(
    bus: DirectoryReader, channel: Channel, source: str, start: int = 0, end: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a log from a position, or from its oldest one, to another or its end, with their log ids."""
    end = bus.end_positions(channel)[source] if end is None else end
    for segment in bus.segments(channel, source):
        lower, upper = max(start, segment.base), min(segment.limit, end)
        if lower < upper:
            yield from arrow_batches(source, bus.read(channel, source, lower, upper), segment.log_id)
