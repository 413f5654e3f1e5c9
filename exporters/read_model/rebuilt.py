"""The state from the rows of the change log alone: the newest row of each key, up to a version.

For the state as of an older version, of which no state table is kept, and for the present one while a state table
cannot be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.snapshot import ReplicationSnapshot
from streaming.contracts.events import Cause
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.history import EXPIRED_VERSION, newest_changes
from streaming.delta.log.queries import open_ours, query
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.state import AsOf, apply_changes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltalake import DeltaTable

    from streaming.contracts.identifiers import BrokerId, ClusterId


def state_of_changes(changes: DeltaTable, version: int) -> SnapshotDraft:
    """Rebuild what the change log contained at a version, without how often brokers were removed from ISRs."""
    draft = SnapshotDraft(ReplicationSnapshot())
    rows = newest_changes(changes, f"version <= {version}")
    apply_changes(draft, rows.sort_by([("version", "ascending"), ("ordinal", "ascending")]))
    return draft


def present_state(tables: Path) -> tuple[SnapshotDraft, AsOf]:
    """Rebuild the newest state, and return the version that it is true of.

    How often brokers were removed from ISRs is counted from the rows, and unknown once history has expired.
    """
    changes = open_ours(tables, PARTITION_CHANGES)
    if changes is None:
        return SnapshotDraft(ReplicationSnapshot()), AsOf()
    version = int(changes.version())
    draft = state_of_changes(changes, version)
    if changes.transaction_version(EXPIRED_VERSION) is None:
        for cluster_id, broker, cause, count in isr_removals(changes, BEFORE_FIRST, version):
            draft.drafts[cluster_id].add_isr_removals(broker, cause, count)
    else:
        for cluster in draft.every_cluster():
            cluster.drop_isr_removals()
    return draft, AsOf(version, version, version, version)


def isr_removals(changes: DeltaTable, after: int, upto: int) -> Iterator[tuple[ClusterId, BrokerId, str, int]]:
    """Count the removals from ISRs in the versions after one, up to another, by cluster, broker and cause."""
    rows = query(
        changes,
        "SELECT cluster_id, broker, cause, count(*) AS removals FROM ("  # noqa: S608 - numbers of ours
        "SELECT cluster_id, cause, unnest(left_isr) AS broker FROM rows "
        f"WHERE version > {after} AND version <= {upto}) GROUP BY cluster_id, broker, cause",
    )
    for row in rows.to_pylist():
        yield row["cluster_id"], row["broker"], row["cause"] or Cause.UNKNOWN.value, row["removals"]
