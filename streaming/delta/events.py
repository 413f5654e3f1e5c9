"""Changes as rows of ``replication_events``: one row an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.contracts.tables import REPLICATION_EVENTS
from streaming.delta.definitions import arrow_schema
from streaming.delta.rows import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SCHEMA: Final = arrow_schema(REPLICATION_EVENTS)
_SHARED: Final = frozenset(_SCHEMA.names)


def events_of(changes: pa.Table) -> pa.Table:
    """Explode rows of ``partition_changes`` into their events, in order."""
    rows = [event for change in plain(changes).to_pylist() for event in _events(change)]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _events(change: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    before, after = change["before"] or {}, change["after"] or {}
    shared = {name: value for name, value in change.items() if name in _SHARED}
    for event in change["events"] or ():
        yield {
            **shared,
            **event,
            "leader_before": before.get("leader"),
            "leader_after": after.get("leader"),
            "isr_before": before.get("isr"),
            "isr_after": after.get("isr"),
            "leader_epoch": after.get("leader_epoch"),
            "partition_epoch": after.get("partition_epoch"),
        }
