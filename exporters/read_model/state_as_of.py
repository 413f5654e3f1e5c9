"""The state as of a version, rebuilt from the rows of the change log up to it: the newest row of each key.

Reads ``partition_changes`` alone, because state tables keep no past; only how often brokers were removed from ISRs is
counted back from now, so it stays right when older history has expired.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from exporters.read_model.reader import isr_removals, state_of_changes
from exporters.read_model.unreadable import INTOLERANT
from exporters.read_model.versions import committed_at
from streaming.contracts.events import Cause
from streaming.contracts.tables import BROKER_STATE_TABLE, PARTITION_CHANGES
from streaming.delta.log.queries import open_ours, select
from streaming.delta.log.storage import open_table
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.state import as_of_version
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from exporters.read_model.draft import SnapshotDraft
    from exporters.read_model.snapshot import ReplicationSnapshot
    from exporters.read_model.unreadable import UnreadableTables
    from streaming.contracts.identifiers import BrokerId, ClusterId
    from streaming.delta.store.place import Place


def state_as_of(tables: Place, version: int, unreadable: UnreadableTables = INTOLERANT) -> ReplicationSnapshot:
    """Rebuild what the tables contained at a version of ``partition_changes``; samples are not included.

    Args:
        tables: the folder of the tables.
        version: of ``partition_changes``.
        unreadable: takes the table of brokers if it cannot be read; their counts of ISR removals are unknown then.

    Raises:
        ConfigurationError: there is no such table.
    """
    path = tables / PARTITION_CHANGES.name
    table = open_table(path)
    if table is None:
        raise ConfigurationError(f"{path} has no version yet; --as-of needs one")
    draft = state_of_changes(table, version)
    brokers = None
    with unreadable.collected():
        opened = open_ours(tables, BROKER_STATE_TABLE)
        counted_upto = BEFORE_FIRST if opened is None else as_of_version(opened)
        brokers = select(opened, BROKER_STATE_TABLE)
    if brokers is None:
        for cluster in draft.every_cluster():
            cluster.drop_isr_removals()
    else:
        _count_isr_removals(draft, brokers.to_pylist(), counted_upto, table, version)
    return draft.finish(version, committed_at(table, version) or 0, 0)


def _count_isr_removals(
    draft: SnapshotDraft, brokers: list[dict[str, Any]], counted_upto: int, changes: DeltaTable, version: int
) -> None:
    """Take the totals of the table of brokers, and count back, or on, to the version."""
    removals: Counter[tuple[ClusterId, BrokerId, str]] = Counter()
    for row in brokers:
        for each in row["isr_departures"] or ():
            removals[row["cluster_id"], row["broker"], each["cause"] or Cause.UNKNOWN.value] += each["departures"]
    sign = 1 if counted_upto < version else -1
    for cluster_id, broker, cause, count in isr_removals(
        changes, min(counted_upto, version), max(counted_upto, version)
    ):
        removals[cluster_id, broker, cause] += sign * count
    for (cluster_id, broker, cause), count in removals.items():
        # None is left where it was removed after the version only, perhaps in a cluster that did not exist yet.
        if count > 0 and cluster_id in draft.drafts:
            draft.drafts[cluster_id].add_isr_removals(broker, cause, count)
