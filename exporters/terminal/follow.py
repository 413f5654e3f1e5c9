"""Events as they are committed, without an end: what ``tail -f`` is for a file."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from exporters.read_model.recorded_events import EventsTable, Row, merged, rows_of
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader, ChangesRestarted, events_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.read_model.event_filter import EventFilter
    from streaming.delta.store.place import Place

LOOK_SECONDS: Final = 0.2
REMEMBERED: Final = 100_000
"""Ids of the newest events, by which a history that is read again leaves out what was given already."""


class EventFollower:
    """Follows the tables below one folder. Survives compaction, gaps in the log, and recreated tables."""

    def __init__(
        self, tables: Place, event_filter: EventFilter, limit: int | None, on_gap: Callable[[ChangesRestarted], None]
    ) -> None:
        """Read nothing yet.

        Args:
            tables: the folder of the tables; it need not exist yet.
            event_filter: which events.
            limit: how many old ones to begin with; None gives all.
            on_gap: called when the changes could not be followed and the history is read again.
        """
        self._tables, self._filter, self._limit, self._on_gap = tables, event_filter, limit, on_gap
        self._tail: ChangeReader | None = None
        self._given: deque[str] = deque(maxlen=REMEMBERED)
        self._newest: int | None = None

    def poll(self) -> list[Row]:
        """Give what is new since the last call: the newest old events first, then in the order of commits."""
        try:
            rows = self._begin() if self._tail is None else self._added(self._tail)
        except ChangesRestarted as gap:
            self._on_gap(gap)
            self._tail = None
            return []
        self._given.extend(row["event_id"] for row in rows)
        self._newest = max((row["collected_at"] for row in rows), default=self._newest)
        return rows

    def forever(self) -> Iterator[list[Row]]:
        """Give what is new, again and again."""
        while True:
            yield self.poll()
            time.sleep(LOOK_SECONDS)

    def _added(self, tail: ChangeReader) -> list[Row]:
        return [row for _, changes in tail.poll() for row in rows_of(events_of(changes)) if self._filter.matches(row)]

    def _begin(self) -> list[Row]:
        """Read the history, and follow the changes from where it ends."""
        recorded = EventsTable.of(self._tables)
        tail = ChangeReader(self._tables / PARTITION_CHANGES.name, recorded.version)
        changes = [rows for _, rows in tail.poll()]
        self._tail = tail
        is_again = self._newest is not None
        event_filter = replace(self._filter, collected_since=self._newest) if is_again else self._filter
        limit = None if is_again else self._limit
        given = set(self._given)
        if not changes:
            return [row for row in recorded.select(event_filter, limit) if row["event_id"] not in given]
        fresh = events_of(pa.concat_tables(changes))
        rows = merged(recorded.select(event_filter, limit), fresh, event_filter, limit)
        return [row for row in rows if row["event_id"] not in given]
