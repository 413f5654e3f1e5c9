"""Rows of ``partition_changes`` by hand, committed one version after another."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from streaming.delta.changes.log import UNCOMMITTED, in_commit
from streaming.delta.log.table_log import delete_log_before
from tests.plugins.table_writes import write

MOMENT = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
COMMITTED_AT = 1_700_000_000_000_000


def row(topic: str, day: int = 0) -> dict[str, Any]:
    when = MOMENT + dt.timedelta(days=day)
    return {
        "date": when.date(), "cluster_id": "id", "cluster": "main", "subject": "partition", "is_baseline": False,
        "occurred_not_before": when, "occurred_not_after": when, "collected_at": when, "source": "s", "topic": topic,
        "left_isr": [1, 2], "after": {"replicas": [1, 2], "isr": [1], "leader": 1, "offline_since": when},
    }  # fmt: skip


def rows(version: int, *topics: str | tuple[str, int]) -> pa.Table:
    """Rows of one commit; a topic may stand with its day."""
    listed = [row(*topic) if isinstance(topic, tuple) else row(topic) for topic in topics]
    return in_commit(pa.Table.from_pylist(listed, schema=UNCOMMITTED), version, COMMITTED_AT + version)


def commit(table: DeltaTable, *topics: str | tuple[str, int]) -> int:
    """Commit rows as the writer of the table does; give the version."""
    return write(table, rows(table.version() + 1, *topics))


def expire_log(table: DeltaTable, path: Path, before: int) -> None:
    """Delete the entries of the versions before one."""
    table.create_checkpoint()
    delete_log_before(path, before)
    for version in range(before):
        (path / "_delta_log" / f"{version:020}.json").unlink(missing_ok=True)
