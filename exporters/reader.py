"""The tables, followed without a JVM: the state tables once, then what each new version of the truth added.

*State = the state tables + the changes after their version.* While the state tables are empty or lag, the changes
alone make the state. Reads next to a writer and never locks. Knows the tables, nothing of metrics.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from exporters.advice import ADVICE_COLUMNS, TIMES_COLUMNS, put_advice, put_times
from exporters.changes import AsOf, SnapshotDraft, apply_changes
from exporters.columns import columns_of, rows_as
from exporters.incidents import INCIDENT_COLUMNS, IS_OVER_SELECTED, put_incidents
from exporters.samples import put_broker_metrics, put_offsets
from exporters.snapshot import NO_TABLE, Broker, Cluster, Partition, ReplicationSnapshot, SourceProgress, Totals
from streaming.contracts.columns import Table
from streaming.contracts.events import Cause
from streaming.contracts.sample_tables import BROKER_METRICS, REPLICA_OFFSETS
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    INCIDENTS,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    SOURCE_PROGRESS,
)
from streaming.delta.tail import ChangeTail, TailGap, has_moved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

EVENTS_KEPT: Final = 1000
# Events of this many versions before the state tables are read as well, so that a fresh start shows some.
EVENT_VERSIONS: Final = 50
# Samples are read again after resting this many times what the last reading took.
REST_PER_WORK: Final = 5.0


def micros_now() -> int:
    """Tell the time in UTC microseconds."""
    return time.time_ns() // 1000


class Key(NamedTuple):
    """Whose row it is."""

    cluster_id: str
    cluster: str


class AsOfRow(NamedTuple):
    """How new a row is."""

    as_of_version: int


class Departed(NamedTuple):
    """How often a broker left, by cause."""

    isr_departures: list[dict[str, Any]] | None

    def by_cause(self) -> dict[str, int]:
        """Give the counts by cause."""
        told = (left.values() for left in self.isr_departures or ())
        return {cause or Cause.UNKNOWN.value: departures for cause, departures in told}


class Reader:
    """Follows the tables below one folder. Not for more than one thread; what it returns is for any."""

    def __init__(self, tables: Path, clock: Callable[[], int] = micros_now) -> None:
        """Read nothing yet.

        Args:
            tables: the folder of the tables; it need not exist yet.
            clock: gives the time in UTC microseconds.
        """
        self.tables = tables
        self._clock = clock
        self._tail: ChangeTail | None = None
        self._as_of = AsOf()
        self._samples = [
            SampledTable(tables, REPLICA_OFFSETS, put_offsets),
            SampledTable(tables, BROKER_METRICS, put_broker_metrics),
            SampledTable(tables, SOURCE_PROGRESS, put_progress),
            SampledTable(tables, CLUSTER_STATE_TABLE, put_times, quoted(TIMES_COLUMNS)),
            SampledTable(tables, BROKER_STATE_TABLE, put_advice, quoted(ADVICE_COLUMNS)),
            SampledTable(tables, INCIDENTS, put_incidents, f"{quoted(INCIDENT_COLUMNS)}, {IS_OVER_SELECTED}"),
        ]
        self.snapshot = ReplicationSnapshot()

    @property
    def recent_events(self) -> tuple[Any, ...]:
        """Give the newest events, newest last."""
        return self.snapshot.recent_events

    def refresh(self) -> ReplicationSnapshot:
        """Read what is new; about a millisecond when nothing is. After an error everything is read anew.

        Raises:
            TailGap: the history between the state tables and now is gone; the next projection of the job closes it.
        """
        tail, self._tail = self._tail, None
        if tail is not None:
            with suppress(TailGap):
                self._follow(tail, SnapshotDraft(self.snapshot))
                self._tail = tail
        if self._tail is None:
            self._load()
        return self.snapshot

    def _load(self) -> None:
        draft = SnapshotDraft(ReplicationSnapshot())
        self._as_of = load_state(self.tables, draft)
        for table in self._samples:
            table.forget()
        begin = self._as_of.oldest()
        path = self.tables / PARTITION_CHANGES.name
        try:
            tail = ChangeTail(path, max(NO_TABLE, begin - EVENT_VERSIONS))
            self._follow(tail, draft)
        except TailGap:
            tail = ChangeTail(path, begin)
            self._follow(tail, draft)
        self._tail = tail

    def _follow(self, tail: ChangeTail, draft: SnapshotDraft) -> None:
        for version, rows in tail.poll():
            apply_changes(draft, version, rows, self._as_of)
        for table in self._samples:
            table.read_into(draft)
        now = self._clock()
        has_news = draft.drafts or draft.incidents is not self.snapshot.incidents
        if has_news or tail.version != self.snapshot.version:
            self.snapshot = draft.finish(tail.version, now, EVENTS_KEPT)
        else:
            self.snapshot = replace(self.snapshot, read_at=now)


class SampledTable:
    """A table of newest samples or of what derives: all its rows are read when it has another version."""

    def __init__(
        self,
        tables: Path,
        definition: Table,
        put: Callable[[SnapshotDraft, pa.Table], None],
        selected: str | None = None,
    ) -> None:
        """Watch a table.

        Args:
            tables: the folder of the tables.
            definition: which of them.
            put: takes all its rows over.
            selected: what is read of each row, in SQL; None is every column.
        """
        self._path = tables / definition.name
        self._selected = selected or quoted(definition.column_names())
        self._put = put
        self.forget()

    def forget(self) -> None:
        """Read it again at the next look."""
        self._version = NO_TABLE
        self._not_before = 0.0

    def read_into(self, draft: SnapshotDraft) -> None:
        """Read the table if it has another version, and has rested from the last reading."""
        began = time.monotonic()
        if began < self._not_before or not has_moved(self._path, self._version):
            return
        if not DeltaTable.is_deltatable(str(self._path)):
            return
        table = DeltaTable(str(self._path))
        self._put(draft, _query(table, self._selected))
        self._version = table.version()
        ended = time.monotonic()
        self._not_before = ended + (ended - began) * REST_PER_WORK


def load_state(tables: Path, draft: SnapshotDraft) -> AsOf:
    """Read the state tables into a draft.

    Returns:
        the version of ``partition_changes`` that each of them is true of.
    """
    clusters, clusters_as_of = _read(tables, CLUSTER_STATE_TABLE, (*Cluster._fields, *Totals._fields))
    for key, cluster, totals in _zipped(clusters, Key, Cluster, Totals):
        opened = draft.cluster(*key)
        opened.put_cluster(cluster)
        opened.put_totals(totals)
    partitions, partitions_as_of = _read(tables, PARTITION_STATE_TABLE, (*Key._fields, *Partition._fields))
    for key, partition in _zipped(partitions, Key, Partition):
        draft.cluster(*key).put_partition(partition)
    columns = (*Key._fields, *Broker._fields, *Departed._fields)
    brokers, brokers_as_of = _read(tables, BROKER_STATE_TABLE, columns)
    for key, broker, departed in _zipped(brokers, Key, Broker, Departed):
        opened = draft.cluster(*key)
        opened.put_broker(broker)
        opened.put_departures(broker.broker, departed.by_cause())
    sources, sources_as_of = _read(tables, SOURCE_PROGRESS, (*Key._fields, *SourceProgress._fields))
    put_progress(draft, sources)
    return AsOf(partitions_as_of, brokers_as_of, clusters_as_of, sources_as_of)


def _read(tables: Path, definition: Table, columns: Iterable[str]) -> tuple[pa.Table, int]:
    """Read some columns of a state table, and the version of the truth it is true of."""
    path = str(tables / definition.name)
    if not DeltaTable.is_deltatable(path):
        return pa.table({}), NO_TABLE
    table = DeltaTable(path)
    rows = _query(table, quoted((*columns, *AsOfRow._fields)))
    versions = columns_of(rows, AsOfRow._fields)[AsOfRow._fields[0]]
    told = table.transaction_version(PARTITION_CHANGES.name)
    return rows, max(
        (*(each for each in versions if each is not None), NO_TABLE if told is None else told), default=NO_TABLE
    )


def put_progress(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the whole of ``source_progress``."""
    for key, source in _zipped(rows, Key, SourceProgress):
        draft.cluster(*key).put_source(source)


def quoted(columns: Iterable[str]) -> str:
    """Write names of columns in SQL, each once."""
    return ", ".join(f'"{name}"' for name in dict.fromkeys(columns))


def _query(table: DeltaTable, selected: str) -> pa.Table:
    """Read through DataFusion: the one way that is right for every feature a table may have."""
    query = QueryBuilder().register("newest", table)
    return pa.table(query.execute(f"select {selected} from newest"))  # noqa: S608 - names of our own columns


def _zipped(rows: pa.Table, *classes: type[Any]) -> Iterable[tuple[Any, ...]]:
    """Read each row as one value a class."""
    names = {name for cls in classes for name in cls._fields}
    columns = columns_of(rows, names)
    return zip(*(rows_as(cls, columns, rows.num_rows) for cls in classes), strict=True)
