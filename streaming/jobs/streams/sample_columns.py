"""Blocks of samples as Arrow columns: workers that read the bus decode them, shards merge and write them.

A worker replaces the payload of a block by its columns, as an Arrow stream. Invalid blocks stay records, so that only
one place reports errors. So do single samples, whose columns would be larger. Knows Arrow and the contracts, no Spark.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from streaming.bus.frames import BusFrame, DamagedRange
from streaming.changes.sources import is_ahead
from streaming.contracts.codec import KINDS, decode, plain_types
from streaming.contracts.group_positions import DEAD
from streaming.contracts.sample_blocks import SamplesBlock
from streaming.delta.log.arrow_types import NAME, arrow_type
from streaming.errors import InvalidObservation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.observations import Observation

_BLOCKS: Final = tuple(kind for kind in KINDS.values() if issubclass(kind, SamplesBlock))
# The first bytes of a block of our codec. Blocks that begin differently stay records.
_PREFIXES: Final = tuple(f'{{"v":{block.format},"kind":"{block.kind}",'.encode() for block in _BLOCKS)
_UNREAD: Final = frozenset({"source_kind", "sequence", "occurred_not_before", "occurred_not_after"})  # in no table
_KIND: Final = b"kind"


class BlockColumns(NamedTuple):
    """A row of the bus that replaces a block; ``samples`` is an Arrow stream with the kind in its metadata."""

    position: int
    samples: bytes


def in_columns(items: Iterable[BusFrame | DamagedRange]) -> Iterator[BusFrame | DamagedRange | BlockColumns]:
    """Replace each block of samples by its columns."""
    for item in items:
        block = _block_of(item.payload) if isinstance(item, BusFrame) else None
        yield item if block is None else BlockColumns(item.position, _as_stream(columns_of(block)))


def columns_of(block: SamplesBlock) -> pa.Table:
    """Return the samples of a block in the columns of ``schema_of`` their kind.

    A block without samples becomes one row with its shared fields; the other columns are null. So are those of the
    rows that stand for samples that a block keeps, but for what it names them by; groups that it ends are dead, too.
    """
    arrays, count = (block.values(), len(block)) if len(block) else ({}, 1)
    kept, ended = (getattr(block, name, ()) for name in ("kept", "ended"))
    if not kept and not ended:
        return _columns(block, arrays, count)
    rows = [_columns(block, arrays, count), _columns(block, {block.kept_by: kept}, len(kept))]
    if ended:
        marks = {block.kept_by: ended, "group_state": [DEAD] * len(ended)}
        rows.append(_columns(block, marks, len(ended)))
    return pa.concat_tables(rows).unify_dictionaries().combine_chunks()


def _columns(block: SamplesBlock, arrays: Mapping[str, Sequence[Any]], count: int) -> pa.Table:
    schema, shared = schema_of(block.sample), block.shared()
    columns = [
        pa.array(arrays[field.name], field.type)
        if field.name in arrays
        else _repeated(shared.get(field.name), field.type, count)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def schema_of(kind: type[Observation]) -> pa.Schema:
    """Return the columns of samples of one kind: names are dictionary-encoded, times are microseconds."""
    return _schema_of(kind.kind)


@cache
def _schema_of(name: str) -> pa.Schema:
    plain = {name: plain for name, plain in plain_types(KINDS[name]).items() if name not in _UNREAD}
    columns = [(name, NAME if type_ == "string" else arrow_type(type_)) for name, type_ in plain.items()]
    return pa.schema(columns, {_KIND: name.encode()})


def from_stream(samples: bytes) -> tuple[type[Observation], pa.Table]:
    """Return the kind and the columns of samples that a worker has decoded."""
    with pa.ipc.open_stream(samples) as stream:
        table = stream.read_all()
    return KINDS[table.schema.metadata[_KIND].decode()], table


def _block_of(payload: bytes) -> SamplesBlock | None:
    if not payload.startswith(_PREFIXES):
        return None
    try:
        observed = decode(payload)
    except InvalidObservation:
        return None
    if not isinstance(observed, SamplesBlock) or is_ahead(observed, time.time_ns() // 1000):
        return None
    return observed


def _as_stream(columns: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema) as stream:
        stream.write_table(columns)
    return bytes(sink.getvalue())


def _repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    """Return a column of one value; names are dictionary-encoded."""
    if value is None or kind != NAME:
        return pa.repeat(pa.scalar(value, kind), count)
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), [value])
