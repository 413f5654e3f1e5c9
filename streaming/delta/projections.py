"""The tables derived from the change log: events, partition, broker and cluster state. Written after the change log.

Each table stores, in the commit that writes it, the version of ``partition_changes`` it is computed up to. So after a
crash between two of them the next round writes what is missing, and a start rebuilds the state from these tables and
the changes after them. One thread writes all of them, beside the thread of the batches.
"""

from __future__ import annotations

import math
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streaming.contracts.columns import Table
from streaming.contracts.observations import Channel
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    REPLICATION_EVENTS,
)
from streaming.delta.change_reader import SECONDS_BETWEEN_HEARTBEATS, ChangesRestarted, rows_between
from streaming.delta.definitions import arrow_schema, rows_to_arrow
from streaming.delta.events import events_of
from streaming.delta.history import expire_days
from streaming.delta.layouts import create_or_upgrade
from streaming.delta.maintenance import KEEP_ALL, AppendMaintenance, Maintenance, RetentionPolicy
from streaming.delta.partitions import newest_partitions, states_after, without_tombstones
from streaming.delta.progress import ProgressTable
from streaming.delta.queries import select
from streaming.delta.shared_state import Recovered, SharedState
from streaming.delta.state_reader import AsOf, apply_changes, as_of_version, count_isr_removals, load_state
from streaming.delta.summaries import broker_rows, cluster_rows
from streaming.delta.table_log import BEFORE_FIRST
from streaming.delta.writer import APPEND, OVERWRITE, Writer
from streaming.errors import TableRefused
from streaming.runtime.garbage import never_collected

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltalake import DeltaTable

    from streaming.changes.advice.suspects import SuspectTally
    from streaming.changes.state import ReplicationState
    from streaming.contracts.identifiers import ClusterId, Micros

_SOURCE_VERSION: Final = PARTITION_CHANGES.name
SECONDS_WHILE_DEGRADED: Final = 5.0
_DEGRADED: Final = ("under_replicated_partitions", "under_min_isr_partitions", "offline_partitions")
# Two writers of a table derived from one change log write the same rows, so the loser of a race checks again.
TRIES: Final = 5
_STATES: Final = (PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE)


class Projections:
    """The only writer of every table that is derived from the change log."""

    def __init__(self, directory: Path, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open the tables, or create them.

        Raises:
            TableRefused: one is not ours, or newer than this program.
        """
        self._directory = directory
        self._path = directory / PARTITION_CHANGES.name
        self._tables = {table.name: create_or_upgrade(directory, table) for table in (REPLICATION_EVENTS, *_STATES)}
        ProgressTable(directory, Channel.REPLICATION)  # created here: a start reads it before anything is reported
        self._writers = {name: Writer(table) for name, table in self._tables.items()}
        self._maintenance = {
            table.name: Maintenance(self._tables[table.name], directory / table.name, policy) for table in _STATES
        }
        events, name = self._tables[REPLICATION_EVENTS.name], REPLICATION_EVENTS.name
        self._maintenance[name] = AppendMaintenance(events, directory / name, self._writers[name], expire_days, policy)
        self._removals_version = BEFORE_FIRST
        self._is_degraded = False
        self._dropped: dict[ClusterId, Micros | None] | None = None  # up to when tombstones are not in the table
        self._projected, self._projected_at = BEFORE_FIRST, -math.inf
        self._recovered = Recovered()
        self._last_read = BEFORE_FIRST, BEFORE_FIRST, pa.table({})

    def recover(self, version: int) -> SharedState:
        """Rebuild the state at a version of the change log: the state tables, then the changes after them.

        Raises:
            TableRefused: the state tables are of a later version than the change log has.
        """
        with never_collected():
            as_of = load_state(self._directory, self._recovered)
            # Each of them alone: of an older change log, the table that is ahead would not be written for long.
            newest = max(*as_of, *(as_of_version(table) for table in self._tables.values()))
            try:
                changes = rows_between(self._path, as_of.oldest(), version)
            except ChangesRestarted as error:
                raise self._ahead(newest, error) from error
            if newest > version:
                raise self._ahead(newest, f"its newest one is {version}")
            self._removals_version = version
            self._recovered.load_topics_of(changes, as_of)
            apply_changes(self._recovered, changes, as_of)
            count_isr_removals(self._recovered, changes, as_of)
            return self._recovered.shared(version)

    def _ahead(self, version: int, why: object) -> TableRefused:
        return TableRefused(
            f"the state tables were computed up to version {version} of {self._path}, which is older ({why}); "
            "bring back the whole folder of the tables from one copy, or point tables.directory and job.checkpoint at "
            "new folders"
        )

    def is_due(self, shared: SharedState) -> bool:
        """Return whether the tables are to be written: after steps at once, after mere heartbeats once in a while.

        While partitions are degraded, that is more often, because the seconds of their clusters go on.
        """
        pause = SECONDS_WHILE_DEGRADED if self._is_degraded else SECONDS_BETWEEN_HEARTBEATS
        is_long_ago = time.monotonic() - self._projected_at >= pause
        return shared.stepped > self._projected or (is_long_ago and shared.version > self._projected)

    def project(self, shared: SharedState) -> bool:
        """Write every table that lags behind the state; return whether there was anything to do."""
        state, tally, version = shared.copied()
        makers: dict[str, Callable[[], None]] = {
            REPLICATION_EVENTS.name: lambda: self._append_events(version),
            CLUSTER_STATE_TABLE.name: partial(
                self._overwrite, CLUSTER_STATE_TABLE, lambda: self._cluster_rows(state, tally, version), version
            ),
            BROKER_STATE_TABLE.name: partial(
                self._overwrite, BROKER_STATE_TABLE, lambda: self._broker_rows(state, tally, version), version
            ),
            PARTITION_STATE_TABLE.name: lambda: self._write_partitions(state, version),
        }
        written = [self._brought_to(version, self._tables[name], write) for name, write in makers.items()]
        self._projected, self._projected_at = version, time.monotonic()
        return any(written)

    def _brought_to(self, version: int, table: DeltaTable, write: Callable[[], None]) -> bool:
        """Write a table that lags behind; return whether it did. No writer ever moves a table to an older version."""
        for _ in range(TRIES):
            if as_of_version(table) >= version:
                return False
            try:
                write()
            except TableRefused:
                table.update_incremental()
            else:
                return True
        raise TableRefused(f"{table.table_uri} is written by another job again and again; stop one of the two")

    def _changes(self, after: int, upto: int) -> pa.Table:
        """Read changes; the tables of one round mostly ask for the same ones."""
        if self._last_read[:2] != (after, upto):
            self._last_read = after, upto, rows_between(self._path, after, upto)
        return self._last_read[2]

    def _cluster_rows(self, state: ReplicationState, tally: SuspectTally, version: int) -> list[dict[str, object]]:
        rows = cluster_rows(state, tally, version)
        self._is_degraded = any(row[name] for row in rows for name in _DEGRADED)
        return rows

    def _broker_rows(self, state: ReplicationState, tally: SuspectTally, version: int) -> list[dict[str, object]]:
        changes = self._changes(self._removals_version, version)
        count_isr_removals(self._recovered, changes, AsOf(brokers=self._removals_version))
        self._removals_version = version
        return broker_rows(state, tally, self._recovered.isr_removals, version)

    def _append_events(self, version: int) -> None:
        name = REPLICATION_EVENTS.name
        changes = self._changes(as_of_version(self._tables[name]), version)
        self._writers[name].write(events_of(changes), APPEND, {_SOURCE_VERSION: version})
        self._maintenance[name].after_commit()

    def _write_partitions(self, state: ReplicationState, version: int) -> None:
        """Replace the rows of changed partitions and drop expired tombstones; without changes move the version only."""
        name = PARTITION_STATE_TABLE.name
        table = self._tables[name]
        after = states_after(self._changes(as_of_version(table), version), version)
        dropped = {cluster.cluster_id: cluster.tombstones_until for cluster in state.clusters.values()}
        if after.num_rows or self._dropped not in (None, dropped):
            before = select(table, PARTITION_STATE_TABLE)
            rows = without_tombstones(newest_partitions(before, after, version), state.clusters.values())
            self._writers[name].write(rows, OVERWRITE, {_SOURCE_VERSION: version})
        else:
            self._writers[name].write(after, APPEND, {_SOURCE_VERSION: version})
        self._dropped = dropped
        self._maintenance[name].after_commit()

    def _overwrite(self, table: Table, make: Callable[[], list[dict[str, object]]], version: int) -> None:
        data = rows_to_arrow(make(), arrow_schema(table))
        self._writers[table.name].write(data, OVERWRITE, {_SOURCE_VERSION: version})
        self._maintenance[table.name].after_commit()
