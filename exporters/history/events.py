"""The events that were recorded, oldest first: ``replication_events``, then what the changes after it tell.

A row is a dictionary, column name to value, times in UTC microseconds. Read through DataFusion: files, days and row
groups that cannot hold a wanted event are not read, and of a limited answer only its rows are decoded.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from exporters.columns import columns_of
from exporters.history.versions import newest_up_to, versions_of
from streaming.contracts.tables import PARTITION_CHANGES, REPLICATION_EVENTS
from streaming.delta.events import events_of
from streaming.delta.tail import BEFORE_FIRST, ChangeTail, rows_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from exporters.history.wanted import Wanted

Row = dict[str, Any]
COLUMNS: Final = tuple(
    name for name in REPLICATION_EVENTS.column_names() if name not in REPLICATION_EVENTS.partitioned_by
)
_ORDER: Final = ("occurred_not_after", 'coalesce("offset", -1)', "event_id")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The table of events as it is, and the version of the truth that it is true of."""

    table: DeltaTable | None
    version: int

    @classmethod
    def of(cls, tables: Path, as_of: int | None = None) -> Recorded:
        """Open the table, as it is now or as of a version of the truth."""
        path = tables / REPLICATION_EVENTS.name
        if not DeltaTable.is_deltatable(str(path)):
            return cls(None, BEFORE_FIRST)
        table = DeltaTable(str(path))
        if as_of is not None and _truth_of(table) > as_of:
            version = newest_up_to(versions_of(path), as_of, lambda at: _truth_of(DeltaTable(str(path), version=at)))
            if version is None:
                return cls(None, BEFORE_FIRST)
            table = DeltaTable(str(path), version=version)
        return cls(table, _truth_of(table))

    def select(self, wanted: Wanted, limit: int | None) -> Iterator[Row]:
        """Read the wanted events, oldest first; of more than the limit the newest."""
        if self.table is None:
            return
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        query = f"SELECT {names} FROM events WHERE {wanted.sql()}"  # noqa: S608 - our own columns, literals escaped
        if limit is not None:
            query = f"SELECT * FROM ({query} ORDER BY {_ordered('DESC')} LIMIT {limit})"  # noqa: S608 - the same
        for batch in QueryBuilder().register("events", self.table).execute(f"{query} ORDER BY {_ordered('ASC')}"):
            yield from rows_of(pa.Table.from_batches([pa.record_batch(batch)]))


def history(tables: Path, wanted: Wanted, *, limit: int | None = None, as_of: int | None = None) -> Iterator[Row]:
    """Read the wanted events, oldest first.

    Args:
        tables: the folder of the tables.
        wanted: which.
        limit: of more than these the newest; None gives all.
        as_of: what was told at this version of ``partition_changes``; None is now.

    Raises:
        TailGap: changes that no table tells yet are gone.
    """
    recorded = Recorded.of(tables, as_of)
    yield from merged(recorded.select(wanted, limit), _after(tables, recorded.version, as_of), wanted, limit)


def merged(recorded: Iterable[Row], fresh: pa.Table, wanted: Wanted, limit: int | None) -> Iterable[Row]:
    """Add the events of changes that the table of events does not have yet."""
    added = sorted((row for row in rows_of(events_of(fresh)) if wanted.matches(row)), key=_key)
    rows = heapq.merge(recorded, added, key=_key)
    return rows if limit is None else deque(rows, maxlen=limit)


def rows_of(events: pa.Table) -> list[Row]:
    """Read rows of the table of events."""
    columns = columns_of(events, COLUMNS)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _after(tables: Path, version: int, as_of: int | None) -> pa.Table:
    path = tables / PARTITION_CHANGES.name
    if as_of is not None:
        return rows_between(path, version, as_of)
    added = [rows for _, rows in ChangeTail(path, version).poll()]
    return pa.concat_tables(added) if added else rows_between(path, version, version)


def _truth_of(table: DeltaTable) -> int:
    told = table.transaction_version(PARTITION_CHANGES.name)
    return BEFORE_FIRST if told is None else told


def _ordered(direction: str) -> str:
    return ", ".join(f"{column} {direction}" for column in _ORDER)


def _key(row: Row) -> tuple[Any, ...]:
    offset = row["offset"]
    return row["occurred_not_after"], -1 if offset is None else offset, row["event_id"]
