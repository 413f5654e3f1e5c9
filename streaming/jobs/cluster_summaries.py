"""What the executors count: tallies of partitions, and the state of brokers and clusters. In Arrow."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.changes.state import ReplicationState
from streaming.changes.tally import Entry, Tally
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE
from streaming.delta.definitions import arrow_schema
from streaming.delta.events import events_of
from streaming.delta.rows import plain, put_partitions
from streaming.delta.summaries import Departures, broker_rows, cluster_rows
from streaming.jobs.cluster_rows import state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Sums of microseconds since 1970 over many partitions do not fit into 64 bits.
_NUMBER: Final = pa.decimal128(38, 0)
DEPARTURE: Final = "departure"
TOTAL: Final = "total"
COUNT: Final = "count"
ENTRY: Final = pa.schema([
    ("cluster_id", pa.string()),
    ("entry", pa.string()),
    ("broker", pa.int32()),
    ("name", pa.string()),
    ("value", _NUMBER),
])  # fmt: skip
ENTRY_TYPES: Final = "cluster_id string, entry string, broker int, name string, value decimal(38,0)"


def explode_events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make the rows of ``replication_events`` of rows of ``partition_changes``."""
    for batch in batches:
        yield from events_of(pa.Table.from_batches([batch])).to_batches()


def tally_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count rows of ``partition_state``, a piece at a time; the pieces add up."""
    for batch in batches:
        state = ReplicationState()
        put_partitions(state, plain(pa.Table.from_batches([batch])))
        rows = [
            {
                "cluster_id": entry.cluster_id,
                "entry": TOTAL if entry.is_total else COUNT,
                "broker": entry.broker,
                "name": entry.name,
                "value": entry.value,
            }
            for entry in Tally(state.partitions()).entries()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=ENTRY)


def summary_rows(table: str, version: int) -> Callable[[tuple[Any, ...], pa.Table, pa.Table], pa.Table]:
    """Make what writes one cluster's rows of a table: what is known of it, and its numbers, in.

    Args:
        table: ``broker_state`` or ``cluster_state``.
        version: of the truth.
    """
    schema = arrow_schema(_DEFINITIONS[table])

    def summarise(_: tuple[Any, ...], known: pa.Table, numbers: pa.Table) -> pa.Table:
        state, (tally, departures) = state_of(known), _numbers(numbers)
        is_brokers = table == BROKER_STATE_TABLE.name
        rows = broker_rows(state, tally, departures, version) if is_brokers else cluster_rows(state, tally, version)
        return pa.Table.from_pylist(rows, schema=schema)

    return summarise


def _numbers(numbers: pa.Table) -> tuple[Tally, Departures]:
    tally, departures = Tally(), Departures(Counter())
    for row in numbers.to_pylist():
        value = int(row["value"])
        if row["entry"] == DEPARTURE:
            departures[row["cluster_id"], row["broker"], row["name"]] += value
        else:
            tally.add(Entry(row["cluster_id"], row["entry"] == TOTAL, row["broker"], row["name"], value))
    return tally, departures


_DEFINITIONS: Final = {table.name: table for table in (BROKER_STATE_TABLE, CLUSTER_STATE_TABLE)}
