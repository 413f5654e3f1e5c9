"""Events as they are committed, without an end: what ``tail -f`` is for a file."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from exporters.answers.answer import AnswersRestarted, ServerRefused, ServerUnavailable
from exporters.answers.events import LARGEST_LIMIT
from exporters.read_model.recorded_events import EventsTable, Row, merged, rows_of
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader, ChangesRestarted, events_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from exporters.answers.answer import Answer, Question
    from exporters.answers.server import Server
    from exporters.read_model.event_filter import EventFilter
    from streaming.delta.store.place import Place

LOOK_SECONDS: Final = 0.2
SERVER_LOOK_SECONDS: Final = 1.0
_OF_TABLE: Final = "of_table"
REMEMBERED: Final = 100_000
"""Ids of the newest events, by which a history that is read again leaves out what was given already."""


class EventFollower:
    """Follows the tables below one folder. Survives compaction, gaps in the log, and recreated tables."""

    def __init__(
        self, tables: Place, event_filter: EventFilter, limit: int | None, on_gap: Callable[[ChangesRestarted], None]
    ) -> None:
        """Read nothing yet; begin with some old events, or all.

        ``on_gap`` is called when the changes could not be followed and the history is read again.
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


class ServerFollower:
    """Follows the events of an exporter: what was committed since the version that it answered last."""

    def __init__(
        self,
        server: Server,
        question: Question,
        limit: int | None,
        newest: Callable[[int | None], Iterable[Row]],
        say: Callable[[str], None],
    ) -> None:
        """Ask for nothing yet; begin with some old events, or all; ``newest`` reads those, oldest first.

        ``say`` is given why the server does not answer, once, and why events are read again.
        """
        self._server, self._question, self._limit = server, question, limit
        self._newest, self._say = newest, say
        self._version: int | None = None
        self._table_id: str | None = None
        self._given: deque[str] = deque(maxlen=REMEMBERED)
        self._said: str | None = None

    def poll(self) -> list[Row]:
        """Give what is new since the last call; nothing while the server does not answer."""
        try:
            rows = self._begin() if self._version is None else self._added(self._version)
        except AnswersRestarted as gap:
            self._say(f"{gap}; reading the events again")
            self._version, self._table_id, self._limit = None, None, LARGEST_LIMIT
            return []
        except ServerUnavailable as error:
            if not self._given and self._version is None:
                raise
            if str(error) != self._said:
                self._say(f"{error}; trying again")
            self._said = str(error)
            return []
        self._said = None
        given = set(self._given)
        new = [row for row in rows if row["event_id"] not in given]
        self._given.extend(row["event_id"] for row in new)
        return new

    def forever(self) -> Iterator[list[Row]]:
        """Give what is new, again and again."""
        while True:
            yield self.poll()
            time.sleep(SERVER_LOOK_SECONDS)

    def _begin(self) -> list[Row]:
        newest = self._asked(limit="1")
        begin = newest if not newest.version else self._asked(after=str(newest.version))
        rows = [*self._newest(self._limit)]
        self._version, self._table_id = begin.version, begin.table_id
        return rows

    def _added(self, version: int) -> list[Row]:
        after = str(version)
        try:
            answer = self._asked(after=after, **({} if self._table_id is None else {_OF_TABLE: self._table_id}))
        except ServerRefused as refused:  # an older one answers at the same address, too
            if self._table_id is None or _OF_TABLE not in str(refused):
                raise
            answer = self._asked(after=after)
        self._version, self._table_id = answer.version, answer.table_id
        for sentence in answer.sentences:
            self._say(sentence.text)
        return answer.rows

    def _asked(self, **more: str) -> Answer:
        filters = {**self._question.filters, **{name: (text,) for name, text in more.items()}}
        return self._server.answer("events", replace(self._question, filters=filters))
