"""Who still has to read the log of the truth: the tables that derive from it, each up to the version it is true of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable

from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    INCIDENTS,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    REPLICATION_EVENTS,
    SOURCE_PROGRESS,
)
from streaming.delta.tail import BEFORE_FIRST

if TYPE_CHECKING:
    from pathlib import Path

# A start needs these whatever else runs; of the incidents only who has begun with them.
ALWAYS: Final = (REPLICATION_EVENTS, PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, SOURCE_PROGRESS)


def oldest_needed(directory: Path) -> int:
    """Give the oldest version of ``partition_changes`` whose log must stay; 0 while a table lacks everything."""
    names = [table.name for table in ALWAYS]
    if DeltaTable.is_deltatable(str(directory / INCIDENTS.name)):
        names.append(INCIDENTS.name)
    return max(0, min(_true_of(directory / name) for name in names))


def _true_of(path: Path) -> int:
    if not DeltaTable.is_deltatable(str(path)):
        return BEFORE_FIRST
    told = DeltaTable(str(path)).transaction_version(PARTITION_CHANGES.name)
    return BEFORE_FIRST if told is None else told
