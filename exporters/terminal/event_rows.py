"""The rows of ``isrwatch events``: one per event, or one for what happened at one moment for one cause."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporters.answers.event_groups import by_moment
from exporters.answers.event_text import as_event
from exporters.read_model.recorded_events import COLUMNS
from exporters.terminal.event_view import MOMENT_COLUMNS, event_fields, event_style, moment_fields, moment_style, row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exporters.terminal.output import Row
    from exporters.terminal.table_layout import Field

    Read = Callable[[int | None], Iterable[Row]]

EVENTS_PER_ROW: Final = 100
"""Events that are read for each row that is asked for; if these are too few, all are."""


@dataclass(frozen=True, slots=True)
class EventRows:
    """Rows that are printed of events.

    Attributes:
        rows: makes rows of events, in their order.
        newest: makes the newest rows: of a function that reads the newest N events, or all, and of how many rows.
        fields: the columns on a terminal or of a line.
        columns: names for JSON and CSV.
        style: the colour of a row.
    """

    rows: Callable[[Iterable[Row]], Iterable[Row]]
    newest: Callable[[Read, int | None], Iterable[Row]]
    fields: Callable[..., tuple[Field, ...]]
    columns: tuple[str, ...]
    style: Callable[[Row], str]


def _grouped(events: Iterable[Row]) -> Iterable[Row]:
    return (row_of(group) for group in by_moment(map(as_event, events)))


def newest_moments(read: Read, limit: int | None) -> Iterable[Row]:
    """Return the newest rows, oldest first; none of them lacks an event because too few were read.

    Args:
        read: reads the newest N events, or all of them, oldest first.
        limit: how many rows at most; None returns all.
    """
    if limit is None:
        return _grouped(read(None))
    enough = limit * EVENTS_PER_ROW
    events = list(read(enough))
    if len(events) == enough:  # the oldest moment may have more events than were read
        oldest = events[0]["occurred_not_after"]
        rows = deque(_grouped(event for event in events if event["occurred_not_after"] > oldest), maxlen=limit)
        return rows if len(rows) == limit else deque(_grouped(read(None)), maxlen=limit)
    return deque(_grouped(events), maxlen=limit)


EACH: Final = EventRows(lambda events: events, lambda read, limit: read(limit), event_fields, COLUMNS, event_style)
BY_MOMENT: Final = EventRows(_grouped, newest_moments, moment_fields, MOMENT_COLUMNS, moment_style)
