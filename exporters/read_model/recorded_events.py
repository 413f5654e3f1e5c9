"""Recorded events, oldest first: the table ``replication_events``, then the events of newer changes.

A row is a dictionary, column name to value, times in UTC microseconds. Read through DataFusion: files, days and row
groups that cannot contain a selected event are skipped, and under a limit only the rows returned are decoded.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from deltalake import QueryBuilder

from exporters.read_model.event_filter import key_of
from exporters.read_model.unreadable import INTOLERANT
from streaming.contracts.tables import PARTITION_CHANGES, REPLICATION_EVENTS
from streaming.delta.changes.reader import ChangeReader, events_of, rows_between
from streaming.delta.log.definitions import arrow_schema, check_layout
from streaming.delta.log.queries import columns_of
from streaming.delta.log.storage import open_table, reading
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.state import as_of_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltalake import DeltaTable

    from exporters.read_model.event_filter import EventFilter
    from exporters.read_model.unreadable import UnreadableTables
    from streaming.delta.store.place import Place

Row = dict[str, Any]
COLUMNS: Final = tuple(
    name for name in REPLICATION_EVENTS.column_names() if name not in REPLICATION_EVENTS.partitioned_by
)
_ORDER: Final = ("occurred_not_after", 'coalesce("offset", -1)', "event_id")


@dataclass(frozen=True, slots=True)
class EventsTable:
    """The table of events, and the version of ``partition_changes`` up to which it is complete.

    ``as_of``: events of later versions are left out; None reads all.
    """

    table: DeltaTable | None
    version: int
    as_of: int | None = None

    @classmethod
    def of(cls, tables: Place, as_of: int | None = None) -> EventsTable:
        """Open the table, to read all of it or as of a version of ``partition_changes``."""
        table = open_table(tables / REPLICATION_EVENTS.name)
        if table is None:
            return cls(None, BEFORE_FIRST, as_of)
        check_layout(table, REPLICATION_EVENTS)
        return cls(table, as_of_version(table), as_of)

    def select(self, selection: EventFilter, limit: int | None, *, oldest: bool = False) -> Iterator[Row]:
        """Read the selected events, oldest first; if there are more than the limit, the newest or oldest of them."""
        if self.table is None:
            return
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        upto = "true" if self.as_of is None else f"version <= {self.as_of}"
        query = f"SELECT {names} FROM events WHERE {upto} AND {selection.sql()}"  # noqa: S608 - our own columns, literals escaped
        if limit is not None:
            query = f"SELECT * FROM ({query} ORDER BY {_ordered('ASC' if oldest else 'DESC')} LIMIT {limit})"  # noqa: S608 - the same
        engine = QueryBuilder().register("events", self.table)
        with reading(self.table.table_uri):
            for batch in pa.RecordBatchReader.from_stream(engine.execute(f"{query} ORDER BY {_ordered('ASC')}")):
                yield from rows_of(pa.Table.from_batches([batch]))


def history(  # noqa: PLR0913 - each optional one selects in another way
    tables: Place,
    selection: EventFilter,
    unreadable: UnreadableTables = INTOLERANT,
    *,
    limit: int | None = None,
    as_of: int | None = None,
    oldest: bool = False,
) -> Iterator[Row]:
    """Read the selected events, oldest first. If the table of events cannot be read, they are read from the changes.

    ``limit`` returns only the newest, or the ``oldest``; ``as_of`` leaves out events that were committed after this
    version of ``partition_changes``. ``unreadable`` takes the tables that could not be read.

    Raises:
        ChangesRestarted: changes that are not yet in the table of events were deleted.
    """
    recorded: Iterable[Row] = ()
    version = BEFORE_FIRST
    with unreadable.collected():
        table = EventsTable.of(tables, as_of)
        recorded = _begun(table.select(selection, limit, oldest=oldest))
        version = table.version
    fresh = events_of(arrow_schema(PARTITION_CHANGES).empty_table())
    with unreadable.collected():
        fresh = events_of(_after(tables, version, as_of))
    yield from merged(recorded, fresh, selection, limit, oldest=oldest)


def _begun(rows: Iterator[Row]) -> Iterator[Row]:
    """Read the first row now: the rows are sorted, so every file was read before it."""
    first = list(islice(rows, 1))
    return chain(first, rows)


def merged(
    recorded: Iterable[Row], fresh: pa.Table, selection: EventFilter, limit: int | None, *, oldest: bool = False
) -> Iterable[Row]:
    """Merge the events of changes that are not yet in the table of events; ``fresh``: their rows, exploded."""
    added = sorted((row for row in rows_of(fresh) if selection.matches(row)), key=key_of)
    rows = heapq.merge(recorded, added, key=key_of)
    if limit is None:
        return rows
    return islice(rows, limit) if oldest else deque(rows, maxlen=limit)


class AddedEvents(NamedTuple):
    """Events that were committed after a version, in the order of commits; up to which version, of which table."""

    rows: list[Row]
    version: int
    table_id: str | None


def added_events(tables: Place, version: int, selection: EventFilter, table_id: str | None) -> AddedEvents:
    """Read the selected events that were committed after a version of ``partition_changes``, of a table with an id.

    Raises:
        ChangesRestarted: the changes after that version are not there any more, or the table is another one.
    """
    reader = ChangeReader(tables / PARTITION_CHANGES.name, version)
    reader.table_id = table_id
    rows = [row for _, changes in reader.poll() for row in rows_of(events_of(changes)) if selection.matches(row)]
    return AddedEvents(rows, reader.version, reader.table_id)


def rows_of(events: pa.Table) -> list[Row]:
    """Convert rows of the table of events to dictionaries."""
    columns = columns_of(events, COLUMNS)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _after(tables: Place, version: int, as_of: int | None) -> pa.Table:
    path = tables / PARTITION_CHANGES.name
    if as_of is not None:
        return rows_between(path, version, max(version, as_of))
    added = [rows for _, rows in ChangeReader(path, version).poll()]
    return pa.concat_tables(added) if added else rows_between(path, version, version)


def _ordered(direction: str) -> str:
    return ", ".join(f"{column} {direction}" for column in _ORDER)
