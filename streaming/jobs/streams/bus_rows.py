"""Rows of the bus as Arrow: what the workers that read it give to Spark."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.bus.frames import BusFrame, Damaged
from streaming.jobs.schemas import bus_schema
from streaming.jobs.streams.left_out_blocks import LeftOut
from streaming.jobs.streams.sample_columns import BlockColumns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BusRow = BusFrame | Damaged | LeftOut | BlockColumns
"""A record, damage, or what a worker puts in place of records."""

_ROWS_PER_BATCH: Final = 10_000
_LEFT_OUT: Final = {"start": pa.int64(), "end": pa.int64(), "generation": pa.int64(), "places": pa.binary()}
_TYPES: Final = (
    pa.string(),
    pa.int64(),
    pa.binary(),
    pa.string(),
    pa.struct(_LEFT_OUT.items()),
    pa.binary(),
    pa.int64(),
)
SCHEMA: Final = pa.schema([
    pa.field(field.name, kind, field.nullable) for field, kind in zip(bus_schema(), _TYPES, strict=True)
])  # fmt: skip
"""``schemas.bus_schema`` in Arrow."""


def arrow_batches(source: str, items: Iterable[BusRow], log_id: int | None = None) -> Iterator[pa.RecordBatch]:
    """Return what one log holds as batches of ``SCHEMA``; its log id is the same for all of it."""
    rows = iter(items)
    while batch := list(islice(rows, _ROWS_PER_BATCH)):
        columns = zip(*map(_columns, batch), strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, _TYPES[1:-1], strict=True)]
        constant = pa.repeat(pa.scalar(source), len(batch)), pa.repeat(pa.scalar(log_id, pa.int64()), len(batch))
        yield pa.RecordBatch.from_arrays([constant[0], *arrays, constant[1]], schema=SCHEMA)


def _columns(item: BusRow) -> tuple[Any, ...]:
    """Return position, payload, damage, blocks that were left out, and samples."""
    match item:
        case BlockColumns():
            return item.position, b"", None, None, item.samples
        case LeftOut():
            return item.position, item.payload, None, item[2:], None
        case Damaged():
            return item.position, item.raw, item.reason, None, None
        case _:
            return item.position, item.payload, None, None, None
