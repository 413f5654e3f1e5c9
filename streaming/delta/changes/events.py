"""Changes as rows of ``replication_events``: one row per event. Knows Arrow and definitions; the exporter uses it."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.columns import EVENT
from streaming.contracts.tables import REPLICATION_EVENTS
from streaming.delta.log.definitions import arrow_schema

_SCHEMA: Final = arrow_schema(REPLICATION_EVENTS)
_OF_EVENT: Final = frozenset(column.name for column in EVENT)
# By column, where a change has it: the struct, and the field within it.
_OF_STATE: Final = {
    "leader_before": ("before", "leader"),
    "leader_after": ("after", "leader"),
    "isr_before": ("before", "isr"),
    "isr_after": ("after", "isr"),
    "leader_epoch": ("after", "leader_epoch"),
    "partition_epoch": ("after", "partition_epoch"),
}


def events_of(changes: pa.Table) -> pa.Table:
    """Explode rows of ``partition_changes`` into their events, in order."""
    lists = changes["events"].combine_chunks()
    events, owners = pc.list_flatten(lists), pc.list_parent_indices(lists)
    columns = [_column(name, changes, owners, events) for name in _SCHEMA.names]
    return pa.Table.from_arrays(columns, names=_SCHEMA.names).cast(_SCHEMA)


def _column(name: str, changes: pa.Table, owners: pa.Array, events: Any) -> Any:  # noqa: ANN401 - pyarrow ships no types
    """Take one column at a time: whole rows contain two states each, which events do not have."""
    if name in _OF_EVENT:
        return pc.struct_field(events, name)
    if name in _OF_STATE:
        part, field = _OF_STATE[name]
        return pc.struct_field(changes[part], field).take(owners)
    return changes[name].take(owners)
