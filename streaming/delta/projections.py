"""What derives from the truth, written behind it: events, partition, broker and cluster state.

Each table remembers, in the commit that writes it, the version of ``partition_changes`` it is true of; so a crash
between two of them is made good by the next round, and a start rebuilds the state from these tables and the changes
after them. One thread writes all of them, off the path of the batches.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.state import ReplicationState, SourceState
from streaming.changes.tally import Tally
from streaming.contracts.columns import Table
from streaming.contracts.observations import Channel
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    REPLICATION_EVENTS,
)
from streaming.delta import rows as row_forms
from streaming.delta.definitions import arrow_schema, create_or_check
from streaming.delta.events import events_of
from streaming.delta.partitions import newest_partitions, partitions_told, without_tombstones
from streaming.delta.progress import ProgressTable
from streaming.delta.summaries import (
    Departures,
    broker_rows,
    cluster_rows,
    count_departures,
)
from streaming.delta.tail import TailGap, rows_between
from streaming.delta.upkeep import EVERYTHING, AppendUpkeep, Keep, Upkeep
from streaming.delta.writer import APPEND, OVERWRITE, Writer
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltalake import DeltaTable

SOURCE_VERSION: Final = PARTITION_CHANGES.name
# Two writers of a table that derives from one truth write the same, so whoever comes second looks again.
TRIES: Final = 5


@dataclass(slots=True)
class SharedState:
    """The state at one version of the truth, shared between the batches and the projections."""

    state: ReplicationState = field(default_factory=ReplicationState)
    version: int = -1
    tally: Tally = field(default_factory=Tally)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def applied(self, touched: ReplicationState, version: int) -> None:
        """Make true what a committed batch touched."""
        with self.lock:
            self.tally.apply(self.state, touched)
            self.tally.forget(self.state.apply(touched))
            self.version = version

    def sources(self) -> tuple[list[SourceState], int]:
        """Give how far every source came, and the version that says so."""
        with self.lock:
            return list(self.state.sources.values()), self.version

    def seen(self) -> tuple[ReplicationState, Tally, int]:
        """Give copies that later batches do not change, and their version: of all but the partitions."""
        with self.lock:
            frozen = ReplicationState(
                brokers=copy(self.state.brokers),
                clusters=copy(self.state.clusters),
                sources=copy(self.state.sources),
                min_isr=copy(self.state.min_isr),
            )
            return frozen, self.tally.copy(), self.version


@contextmanager
def _no_collections() -> Iterator[None]:
    """Make millions of objects that stay, without looking for garbage among them, neither now nor at any later time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Projections:
    """The one writer of every table that derives from the truth."""

    def __init__(self, directory: Path, keep: Keep = EVERYTHING) -> None:
        self._truth = directory / PARTITION_CHANGES.name
        self._events = create_or_check(directory, REPLICATION_EVENTS)
        self._tables = {
            table.name: create_or_check(directory, table)
            for table in (PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE)
        }
        self._progress = ProgressTable(directory, Channel.REPLICATION)
        self._writers = {name: Writer(table) for name, table in self._tables.items()} | {
            REPLICATION_EVENTS.name: Writer(self._events)
        }
        self._departures: Departures = Counter()
        self._departures_version = self._version(self._tables[BROKER_STATE_TABLE.name])
        self._upkeep = {name: Upkeep(table, directory / name) for name, table in self._tables.items()}
        events = REPLICATION_EVENTS.name
        self._upkeep[events] = AppendUpkeep(self._events, directory / events, self._writers[events], keep)

    def recover(self, version: int) -> SharedState:
        """Rebuild the state at a version of the truth: the state tables, then the changes after them."""
        with _no_collections():
            return self._recover(version)

    def _recover(self, version: int) -> SharedState:
        state = ReplicationState()
        for row in self._rows(BROKER_STATE_TABLE):
            row_forms.put_broker(state, row)
            for left in row["isr_departures"] or ():
                self._departures[row["cluster_id"], row["broker"], left["cause"]] = left["departures"]
        for row in self._rows(CLUSTER_STATE_TABLE):
            row_forms.put_cluster(state, row)
        row_forms.put_partitions(state, row_forms.read_all(self._tables[PARTITION_STATE_TABLE.name]))
        for row in self._progress.rows():
            row_forms.put_source(state, row)
        oldest = min(self._progress.as_of_version, *(self._version(table) for table in self._tables.values()))
        row_forms.replay(state, self._changes_after(oldest, version))
        return SharedState(state=state, version=version, tally=Tally(state.partitions()))

    def _changes_after(self, oldest: int, version: int) -> pa.Table:
        try:
            return rows_between(self._truth, oldest, version)
        except TailGap as gap:
            raise TableRefused(
                f"the state tables are true of version {oldest} of {self._truth}, and the changes after it are not all "
                f"there ({gap}); bring back the whole folder of the tables from one copy, or point tables.directory "
                "and job.checkpoint at new folders"
            ) from gap

    def project(self, shared: SharedState) -> bool:
        """Write every table that lags behind the state; give whether there was anything to do."""
        state, tally, version = shared.seen()
        is_behind = self._brought_to(version, self._events, lambda: self._append_events(version))
        for name, make in self._makers(state, tally, version):
            table, write = self._tables[name], partial(self._overwrite, name, make, version)
            is_behind |= self._brought_to(version, table, write)
        partitions = self._tables[PARTITION_STATE_TABLE.name]
        return self._brought_to(version, partitions, lambda: self._write_partitions(state, version)) or is_behind

    def _brought_to(self, version: int, table: DeltaTable, write: Callable[[], None]) -> bool:
        """Write a table that lags behind; give whether it did. It never goes back, whoever writes it."""
        for _ in range(TRIES):
            if self._version(table) >= version:
                return False
            try:
                write()
            except TableRefused:
                table.update_incremental()
            else:
                return True
        raise TableRefused(f"{table.table_uri} is written by another job all the time; stop one of the two")

    def _makers(
        self, state: ReplicationState, tally: Tally, version: int
    ) -> list[tuple[str, Callable[[], list[dict[str, Any]]]]]:
        return [
            (CLUSTER_STATE_TABLE.name, lambda: cluster_rows(state, tally, version)),
            (BROKER_STATE_TABLE.name, lambda: self._broker_rows(state, tally, version)),
        ]

    def _broker_rows(self, state: ReplicationState, tally: Tally, version: int) -> list[dict[str, Any]]:
        fresh = rows_between(self._truth, self._departures_version, version)
        fresh = fresh.select(["cluster_id", "left_isr", "cause"])
        count_departures(
            self._departures, fresh.filter(pc.greater(pc.list_value_length(fresh["left_isr"]), 0)).to_pylist()
        )
        self._departures_version = version
        return broker_rows(state, tally, self._departures, version)

    def _append_events(self, version: int) -> None:
        fresh = rows_between(self._truth, self._version(self._events), version)
        self._writers[REPLICATION_EVENTS.name].write(events_of(fresh), APPEND, {SOURCE_VERSION: version})
        self._upkeep[REPLICATION_EVENTS.name].after_commit()

    def _write_partitions(self, state: ReplicationState, version: int) -> None:
        """Lay what changed over the table, without expired tombstones; where nothing did, only the version moves."""
        table, name = self._tables[PARTITION_STATE_TABLE.name], PARTITION_STATE_TABLE.name
        told = partitions_told(rows_between(self._truth, self._version(table), version), version)
        if told.num_rows:
            known = row_forms.read_typed(table).cast(told.schema)
            rows = without_tombstones(newest_partitions(known, told, version), state.clusters.values())
            self._writers[name].write(rows, OVERWRITE, {SOURCE_VERSION: version})
        else:
            self._writers[name].write(told, APPEND, {SOURCE_VERSION: version})
        self._upkeep[name].after_commit()

    def _overwrite(self, name: str, make: Callable[[], list[dict[str, Any]]], version: int) -> None:
        data = pa.Table.from_pylist(make(), schema=_SCHEMAS[name])
        self._writers[name].write(data, OVERWRITE, {SOURCE_VERSION: version})
        self._upkeep[name].after_commit()

    def _rows(self, table: Table) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = row_forms.read_all(self._tables[table.name]).to_pylist()
        return rows

    @staticmethod
    def _version(table: DeltaTable) -> int:
        known = table.transaction_version(SOURCE_VERSION)
        return -1 if known is None else known


_SCHEMAS: Final = {table.name: arrow_schema(table) for table in (BROKER_STATE_TABLE, CLUSTER_STATE_TABLE)}
