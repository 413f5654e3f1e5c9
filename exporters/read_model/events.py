"""The newest events, kept in memory: rows of changes exploded as in ``replication_events``; whom an event concerns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from exporters.read_model.snapshot import EventRow
from streaming.delta.changes.events import events_of
from streaming.delta.log.queries import columns_of, rows_as

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


def newest_events(changes: pa.Table, limit: int) -> list[EventRow]:
    """Return the events of some changes, oldest first; of more than the limit the newest."""
    if changes.num_rows > limit:
        changes = changes.filter(pc.greater(pc.list_value_length(changes["events"]), 0))
    events = events_of(changes.slice(max(0, changes.num_rows - limit)))
    columns = columns_of(events, EventRow._fields)
    for name in ("candidates", "left_isr", "joined_isr"):
        columns[name] = [() if value is None else value for value in columns[name]]
    rows = rows_as(EventRow, columns, events.num_rows)
    # In the order of time within each version: what a person reads from top to bottom.
    versions = events["version"].to_pylist()
    order = sorted(range(len(rows)), key=lambda index: (versions[index], rows[index].occurred_not_after))
    return [rows[index] for index in order][-limit:]


def brokers_of(row: Mapping[str, Any]) -> set[int]:
    """Return the brokers that an event concerns."""
    single = {row["event_broker"], row["leader_before"], row["leader_after"]}
    return (single | {*(row["left_isr"] or ()), *(row["joined_isr"] or ())}) - {None}
