"""What executors count: tallies of partitions, and the state of brokers and clusters. In Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.changes.tally import SuspectTally
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE
from streaming.contracts.tally import TallyEntry
from streaming.delta.definitions import arrow_schema
from streaming.delta.events import events_of
from streaming.delta.partition_counts import add_rows
from streaming.delta.shared_state import IsrRemovals
from streaming.delta.summaries import broker_rows, cluster_rows
from streaming.jobs.distributed.rows import state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Sums of microseconds since 1970 over many partitions do not fit into 64 bits.
_NUMBER: Final = pa.decimal128(38, 0)
ISR_REMOVAL: Final = "departure"
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
    """Yield the rows of ``replication_events`` that rows of ``partition_changes`` hold."""
    for batch in batches:
        yield from events_of(pa.Table.from_batches([batch])).to_batches()


def tally_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count rows of ``partition_state``, piece by piece; the counts of the pieces add up."""
    for batch in batches:
        tally = SuspectTally()
        add_rows(tally, pa.Table.from_batches([batch]))
        rows = [
            {
                "cluster_id": entry.cluster_id,
                "entry": TOTAL if entry.is_total else COUNT,
                "broker": entry.broker,
                "name": entry.name,
                "value": entry.value,
            }
            for entry in tally.entries()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=ENTRY)


def summary_rows(table: str, version: int) -> Callable[[tuple[Any, ...], pa.Table, pa.Table], pa.Table]:
    """Return the function that makes the rows of one Kafka cluster, of its state and its numbers.

    Args:
        table: ``broker_state`` or ``cluster_state``.
        version: of the change log.
    """
    schema = arrow_schema(_DEFINITIONS[table])

    def summarise(_: tuple[Any, ...], state_rows: pa.Table, numbers: pa.Table) -> pa.Table:
        state, (tally, departures) = state_of(state_rows), _numbers(numbers)
        is_brokers = table == BROKER_STATE_TABLE.name
        rows = broker_rows(state, tally, departures, version) if is_brokers else cluster_rows(state, tally, version)
        return pa.Table.from_pylist(rows, schema=schema)

    return summarise


def _numbers(numbers: pa.Table) -> tuple[SuspectTally, IsrRemovals]:
    tally, departures = SuspectTally(), IsrRemovals()
    for row in numbers.to_pylist():
        value = int(row["value"])
        if row["entry"] == ISR_REMOVAL:
            departures[row["cluster_id"], row["broker"], row["name"]] += value
        else:
            tally.add(TallyEntry(row["cluster_id"], row["entry"] == TOTAL, row["broker"], row["name"], value))
    return tally, departures


_DEFINITIONS: Final = {table.name: table for table in (BROKER_STATE_TABLE, CLUSTER_STATE_TABLE)}
