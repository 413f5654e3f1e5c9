"""Payloads of samples as Arrow columns.

Blocks, which grow with the cluster, come as columns from Spark's workers. What they left as records is decoded here.
Knows Arrow and the contracts, no Spark.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from streaming.contracts.sample_blocks import SamplesBlock
from streaming.delta.quarantine import Refused
from streaming.errors import Quarantined
from streaming.jobs.driver.decoded_batch import decode_row
from streaming.jobs.streams.sample_columns import columns_of, from_stream, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.contracts.observations import Channel, Observation


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples by kind, one column per field (times in microseconds), in the order of the log; and refused records."""

    columns: Mapping[type[Observation], pa.Table]
    refused: tuple[Refused, ...]


def read_samples(rows: pa.Table, kinds: Iterable[type[Observation]], channel: Channel) -> Samples:
    """Read every row of a batch.

    Args:
        rows: as in ``schemas.bus_schema``.
        kinds: the kinds of the channel; a block is of the kind of its samples.
        channel: where they were read; a sample of another channel is refused.

    Raises:
        NewerFormat: a newer program wrote one of them.
    """
    samples: dict[type[Observation], list[Observation | pa.Table]] = defaultdict(list)
    refused: list[Refused] = []
    columns = (rows[name].to_pylist() for name in ("source", "position", "payload", "damage", "samples"))
    for source, position, payload, damage, stream in zip(*columns, strict=True):
        try:
            kind, read = _read(payload, damage, channel) if stream is None else from_stream(stream)
        except Quarantined as reason:
            refused.append(Refused(source=source, position=position, reason=str(reason), raw=payload))
        else:
            samples[kind].append(read)
    return Samples({kind: _table(kind, samples[kind]) for kind in kinds}, tuple(refused))


def _read(payload: bytes, damage: str | None, channel: Channel) -> tuple[type[Observation], Observation | pa.Table]:
    observed = decode_row(payload, damage, channel)
    return (observed.sample, columns_of(observed)) if isinstance(observed, SamplesBlock) else (type(observed), observed)


def _table(kind: type[Observation], samples: Iterable[Observation | pa.Table]) -> pa.Table:
    """Return samples of one kind, singly or in columns, as one table."""
    schema = schema_of(kind)
    pieces = [schema.empty_table()]
    for are_columns, together in groupby(samples, lambda each: isinstance(each, pa.Table)):
        if are_columns:
            pieces += together
        else:
            rows = [{name: getattr(each, name) for name in schema.names} for each in together]
            pieces.append(pa.Table.from_pylist(rows, schema=schema))
    return pa.concat_tables(pieces).unify_dictionaries()
