"""What incidents need of each cluster beside its changes, from the state tables: a start reads no older change.

The state tables may be a few versions before or behind the table of incidents; who follows whom, and in which rack a
broker is, changes seldom, and every later change is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from streaming.changes.cluster_context import ClusterContext
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.observations import SourceKind
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, PARTITION_STATE_TABLE
from streaming.delta.incident_rows import in_sync_of
from streaming.delta.queries import query, quoted
from streaming.delta.storage import open_table

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from streaming.contracts.columns import Table


def read_contexts(directory: Path) -> dict[str, ClusterContext]:
    """Read the context of every cluster by its id; a table that is not there yet adds nothing."""
    contexts: dict[str, ClusterContext] = {}
    times = ("replica_lag_time_max_ms", "broker_session_timeout_ms")
    for row in _rows(directory, CLUSTER_STATE_TABLE, ("cluster_id", "controller", "authority", *times)):
        context = contexts.setdefault(row["cluster_id"], ClusterContext())
        context.controller = NO_LEADER if row["controller"] is None else row["controller"]
        context.authority = row["authority"] or SourceKind.NONE
        context.times = context.times.configured(*(row.get(name) for name in times))
    of_broker = ("cluster_id", "broker", "rack", "is_registered", "is_fenced", "is_shutting_down", "maintenance_leases")
    for row in _rows(directory, BROKER_STATE_TABLE, of_broker):
        context = contexts.setdefault(row["cluster_id"], ClusterContext())
        context.racks[row["broker"]] = row["rack"] or ""
        is_up = bool(row["is_registered"] and not row["is_fenced"])
        context.set_up(row["broker"], is_up=is_up, is_shutting_down=bool(row["is_shutting_down"]))
        if (leases := row.get("maintenance_leases")) is not None:
            context.set_leases(row["broker"], leases)
    partitions = _read(directory, PARTITION_STATE_TABLE, ("cluster_id", "leader", "isr", "is_deleted", "is_diskless"))
    if partitions is not None:
        is_left_out = partitions["is_deleted"]
        if "is_diskless" in partitions.column_names:
            is_left_out = pc.or_(is_left_out, pc.fill_null(partitions["is_diskless"], False))
        existing = partitions.filter(pc.invert(is_left_out)).combine_chunks()
        columns = (existing[name].combine_chunks() for name in ("cluster_id", "leader", "isr"))
        for cluster_id, in_sync in in_sync_of(*columns).items():
            contexts.setdefault(cluster_id, ClusterContext()).add_in_sync(in_sync)
    return contexts


def _rows(directory: Path, table: Table, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = _read(directory, table, columns)
    return [] if rows is None else rows.to_pylist()


def _read(directory: Path, table: Table, columns: tuple[str, ...]) -> pa.Table | None:
    opened = open_table(directory / table.name)  # of any layout: its own query may not have upgraded it yet
    if opened is None:
        return None
    existing = {field.name for field in opened.schema().fields}
    return query(opened, f"SELECT {quoted(name for name in columns if name in existing)} FROM rows")  # noqa: S608 - ours
