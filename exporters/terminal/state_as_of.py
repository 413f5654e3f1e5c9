"""The state as of a version, rebuilt from the rows of the change log up to it: the newest row of each key.

Reads ``partition_changes`` alone, because state tables keep no past; only how often brokers were removed from ISRs is
counted back from now, so it stays right when older history has expired.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.snapshot import ReplicationSnapshot
from exporters.terminal.versions import committed_at
from streaming.contracts.events import Cause
from streaming.contracts.tables import BROKER_STATE_TABLE, PARTITION_CHANGES
from streaming.delta.history import newest_changes
from streaming.delta.queries import open_ours, query, select
from streaming.delta.state_reader import apply_changes, as_of_version
from streaming.delta.storage import open_table
from streaming.delta.table_log import BEFORE_FIRST
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from deltalake import DeltaTable

    from streaming.contracts.identifiers import BrokerId, ClusterId


def state_as_of(tables: Path, version: int) -> ReplicationSnapshot:
    """Rebuild what the tables contained at a version of ``partition_changes``; samples are not included.

    Raises:
        ConfigurationError: there is no such table.
    """
    path = tables / PARTITION_CHANGES.name
    table = open_table(path)
    if table is None:
        raise ConfigurationError(f"{path} has no version yet; --as-of needs one")
    draft = SnapshotDraft(ReplicationSnapshot())
    rows = newest_changes(table, f"version <= {version}")
    apply_changes(draft, rows.sort_by([("version", "ascending"), ("ordinal", "ascending")]))
    _count_isr_removals(draft, tables, table, version)
    return draft.finish(version, committed_at(table, version) or 0, 0)


def _count_isr_removals(draft: SnapshotDraft, tables: Path, changes: DeltaTable, version: int) -> None:
    """Take the totals of the table of brokers, and count back, or on, to the version."""
    brokers = open_ours(tables, BROKER_STATE_TABLE)
    counted_upto = BEFORE_FIRST if brokers is None else as_of_version(brokers)
    removals: Counter[tuple[ClusterId, BrokerId, str]] = Counter()
    for row in select(brokers, BROKER_STATE_TABLE).to_pylist():
        for each in row["isr_departures"] or ():
            removals[row["cluster_id"], row["broker"], each["cause"] or Cause.UNKNOWN.value] += each["departures"]
    between = _removals(changes, min(counted_upto, version), max(counted_upto, version))
    (removals.update if counted_upto < version else removals.subtract)(between)
    for (cluster_id, broker, cause), count in removals.items():
        # None is left where it was removed after the version only, perhaps in a cluster that did not exist yet.
        if count > 0 and cluster_id in draft.drafts:
            draft.drafts[cluster_id].add_isr_removals(broker, cause, count)


def _removals(changes: DeltaTable, after: int, upto: int) -> Counter[tuple[ClusterId, BrokerId, str]]:
    rows = query(
        changes,
        "SELECT cluster_id, broker, cause, count(*) AS removals FROM ("  # noqa: S608 - numbers of ours
        "SELECT cluster_id, cause, unnest(left_isr) AS broker FROM rows "
        f"WHERE version > {after} AND version <= {upto}) GROUP BY cluster_id, broker, cause",
    )
    removals: Counter[tuple[ClusterId, BrokerId, str]] = Counter()
    for row in rows.to_pylist():
        removals[row["cluster_id"], row["broker"], row["cause"] or Cause.UNKNOWN.value] += row["removals"]
    return removals
