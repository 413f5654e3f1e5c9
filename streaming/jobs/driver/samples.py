"""Payloads of samples as Arrow columns.

What grows with the cluster comes in blocks, whose arrays become columns without an object per sample. Knows Arrow and
the contracts, no Spark.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streaming.contracts.fields import plain_types
from streaming.contracts.sample_blocks import SamplesBlock
from streaming.delta.definitions import arrow_type
from streaming.delta.quarantine import Refused
from streaming.errors import Quarantined
from streaming.jobs.driver.decoded_batch import decode_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.contracts.observations import Channel, Observation

# No table of samples has them.
_UNREAD: Final = frozenset({"authority", "sequence", "occurred_not_before", "occurred_not_after"})


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples by kind, one column per field (times in microseconds), in the order of the log; and refused records."""

    columns: Mapping[type[Observation], pa.Table]
    refused: tuple[Refused, ...]


def read_samples(rows: pa.Table, kinds: Iterable[type[Observation]], channel: Channel) -> Samples:
    """Read every payload of a batch.

    Args:
        rows: as in ``schemas.bus_schema``.
        kinds: the kinds of the channel; a block is of the kind of its samples.
        channel: where they were read; a sample of another channel is refused.

    Raises:
        NewerFormat: a newer program wrote one of them.
    """
    observations: dict[type[Observation], list[Observation]] = defaultdict(list)
    refused: list[Refused] = []
    columns = (rows[name].to_pylist() for name in ("source", "position", "payload", "damage"))
    for source, position, payload, damage in zip(*columns, strict=True):
        try:
            observed = decode_row(payload, damage, channel)
        except Quarantined as reason:
            refused.append(Refused(source=source, position=position, reason=str(reason), raw=payload))
        else:
            observations[_kind_of(observed)].append(observed)
    return Samples({kind: _table(kind, observations[kind]) for kind in kinds}, tuple(refused))


def _kind_of(observed: Observation) -> type[Observation]:
    return observed.sample if isinstance(observed, SamplesBlock) else type(observed)


def _table(kind: type[Observation], observations: Iterable[Observation]) -> pa.Table:
    """Return observations of one kind, singly or in blocks, as one table."""
    plain = {name: plain for name, plain in plain_types(kind).items() if name not in _UNREAD}
    schema = pa.schema([(name, arrow_type(type_)) for name, type_ in plain.items()])
    pieces = [schema.empty_table()]
    for is_block, together in groupby(observations, lambda each: isinstance(each, SamplesBlock)):
        if is_block:
            pieces += [_of_block(block, schema) for block in together if isinstance(block, SamplesBlock)]
        else:
            rows = [{name: getattr(each, name) for name in schema.names} for each in together]
            pieces.append(pa.Table.from_pylist(rows, schema=schema))
    return pa.concat_tables(pieces)


def _of_block(block: SamplesBlock, schema: pa.Schema) -> pa.Table:
    arrays, shared, count = block.values(), block.shared(), len(block)
    columns = [
        pa.array(arrays[field.name], field.type)
        if field.name in arrays
        else pa.repeat(pa.scalar(shared.get(field.name), field.type), count)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
