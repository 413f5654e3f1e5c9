"""The writer of the tables derived from the change log: events, partition, broker and cluster state.

Each table stores, in the commit that writes it, the version of ``partition_changes`` it is computed up to. So after a
crash between two of them the next round writes what is missing, and a start rebuilds the state from these tables and
the changes after them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Channel
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    REPLICATION_EVENTS,
)
from streaming.delta.changes.bases import PastStates
from streaming.delta.changes.history import expire_days
from streaming.delta.log.cluster_files import files_by_cluster
from streaming.delta.log.definitions import arrow_schema, rows_to_arrow
from streaming.delta.log.maintenance import KEEP_ALL, AppendMaintenance, Maintenance, RetentionPolicy
from streaming.delta.log.queries import select
from streaming.delta.log.writer import OVERWRITE, opened_together
from streaming.delta.progress import ProgressTable
from streaming.delta.projections.of_clusters import DerivedBefore
from streaming.delta.state import as_of_version
from streaming.errors import IsrwatchError, TableRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streaming.contracts.columns import Table
    from streaming.delta.projections.of_clusters import Derived
    from streaming.delta.store.place import Place

# Two writers of a table derived from one change log write the same rows, so the loser of a race tries again.
TRIES: Final = 5
_PARTITIONS: Final = PARTITION_STATE_TABLE
_ROWS: Final = (CLUSTER_STATE_TABLE, BROKER_STATE_TABLE)
_DEGRADED: Final = ("under_replicated_partitions", "under_min_isr_partitions", "offline_partitions")


class DerivedTables:
    """The only writer of every table that is derived from the change log."""

    def __init__(self, directory: Place, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open the tables, or create them.

        Raises:
            TableRefused: one is not ours, or newer than this program.
        """
        tables = (REPLICATION_EVENTS, *_ROWS, _PARTITIONS)
        self._writers = opened_together(directory, tables)
        ProgressTable(directory, Channel.REPLICATION)  # created here: a start reads it before anything is reported
        self._maintenance = {table.name: Maintenance(self._writers[table.name], policy) for table in tables[1:]}
        events = self._writers[REPLICATION_EVENTS.name]
        self._maintenance[REPLICATION_EVENTS.name] = AppendMaintenance(events, expire_days, policy)
        self._past_states = PastStates(directory, policy)
        self._rows: dict[str, pa.Table] = {}  # of the small tables, as this process has written them
        self._lost_races = 0

    @property
    def version(self) -> int:
        """The version of the change log up to which all of them are computed."""
        return min(as_of_version(writer) for writer in self._writers.values())

    @property
    def newest(self) -> int:
        """The version of the change log up to which any of them is computed."""
        return max(as_of_version(writer) for writer in self._writers.values())

    @property
    def before(self) -> DerivedBefore:
        """State of the tables on which the next round builds."""
        events, partitions = (as_of_version(self._writers[table.name]) for table in (REPLICATION_EVENTS, _PARTITIONS))
        return DerivedBefore(events, partitions, files_by_cluster(self._writers[_PARTITIONS.name]))

    @property
    def is_degraded(self) -> bool:
        """True if partitions of any cluster are degraded, so that its seconds grow."""
        clusters = self._rows.get(CLUSTER_STATE_TABLE.name)
        return clusters is not None and any(pc.any(pc.greater(clusters[name], 0)).as_py() for name in _DEGRADED)

    def commit(self, pieces: Sequence[Derived], version: int) -> None:
        """Commit what was computed for all clusters with changes since ``version`` of the tables; no table goes back.

        Raises:
            IsrwatchError: another writer came first; the next round builds on what it wrote.
            TableRefused: another writer came first again and again.
        """
        replaced = {cluster_id: adds for piece in pieces for cluster_id, adds in piece.partitions.items()}
        files = files_by_cluster(self._writers[_PARTITIONS.name])
        gone = [name for cluster_id in replaced for name in files.get(cluster_id, ())]
        partitions = [add for adds in replaced.values() for add in adds]
        events = [add for piece in pieces for add in piece.events]
        writes: dict[str, Callable[[dict[str, int]], object]] = {
            REPLICATION_EVENTS.name: partial(self._writers[REPLICATION_EVENTS.name].add_files, events, ()),
            **{table.name: partial(self._write, table, pieces) for table in _ROWS},
            _PARTITIONS.name: partial(self._writers[_PARTITIONS.name].add_files, partitions, gone),
        }
        for name, write in writes.items():
            if as_of_version(self._writers[name]) < version:
                self._commit(name, write, version)
        self._add_past_state(version)

    def _add_past_state(self, version: int) -> None:
        """Let the state be kept for the past, while all tables are of one version."""
        if self.version == self.newest == version and all(table.name in self._rows for table in _ROWS):
            clusters, brokers = (self._rows[table.name] for table in _ROWS)
            self._past_states.after_round(version, clusters, brokers, self._writers[_PARTITIONS.name].files())

    def _commit(self, name: str, write: Callable[[dict[str, int]], object], version: int) -> None:
        """Write a table that lags behind."""
        writer = self._writers[name]
        try:
            write({PARTITION_CHANGES.name: version})
        except TableRefused:
            self._lose(name)
            if as_of_version(writer) >= version:
                return
            if self._lost_races >= TRIES:
                raise TableRefused(
                    f"{writer.path} is written by another job again and again; stop one of the two"
                ) from None
            raise IsrwatchError(f"{writer.path} was written by another job meanwhile") from None
        self._lost_races = 0
        self._maintenance[name].after_commit()

    def _lose(self, name: str) -> None:
        """Read what another writer has written."""
        self._lost_races += 1
        self._rows.pop(name, None)
        self._writers[name].look_again()

    def _write(self, table: Table, pieces: Sequence[Derived], transactions: dict[str, int]) -> None:
        """Write a small table again, with the rows of the clusters that were computed."""
        writer = self._writers[table.name]
        before = self._rows.pop(table.name, None)
        rows = merged_rows(table, select(writer.table, table) if before is None else before, pieces)
        writer.write(rows, OVERWRITE, transactions)
        self._rows[table.name] = rows


def merged_rows(table: Table, before: pa.Table, pieces: Iterable[Derived]) -> pa.Table:
    """Return the rows of ``broker_state`` or ``cluster_state``; those of clusters that were computed are replaced."""
    schema = arrow_schema(table)
    parts, computed = [], set[ClusterId]()
    for piece in pieces:
        rows = piece.brokers if table is BROKER_STATE_TABLE else piece.own
        parts.append(rows_to_arrow([dict(row) for row in rows], schema))
        computed |= piece.clusters
    is_computed = pc.is_in(before["cluster_id"], pa.array(sorted(computed), pa.string()))
    return pa.concat_tables([before.filter(pc.invert(is_computed)), *parts])
