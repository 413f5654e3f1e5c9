"""The rows of ``isrwatch events``, one per event or per moment and cause; their columns and colours."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporters.answers.event_groups import by_moment
from exporters.answers.event_text import as_event, style_of, subject, what, why
from exporters.read_model.recorded_events import COLUMNS
from exporters.terminal.table_layout import WORDS, Field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exporters.answers.event_groups import EventGroup
    from exporters.read_model.times import Clock
    from exporters.terminal.output import Row

    Read = Callable[[int | None], Iterable[Row]]


MOMENT_COLUMNS: Final = (
    "occurred_not_before", "occurred_not_after", "cluster_id", "cluster", "source", "subject", "what", "cause",
    "evidence", "candidates", "partitions", "events",
)  # fmt: skip


def event_fields(rows: Iterable[Row], clock: Clock, *, is_line: bool) -> tuple[Field, ...]:
    """Return the columns of an event; a line for a pipe has the full time and the cluster.

    Rows of a table have a column for the cluster if they are of more than one.
    """
    cluster = Field("cluster", lambda row: str(row["cluster"]))
    about = Field("subject", lambda row: subject(as_event(row)))
    cause = Field("cause", lambda row: why(as_event(row)), wraps=WORDS, below=1)
    if not is_line:
        return (
            Field(f"time ({clock.zone})", lambda row: clock.short(row["occurred_not_after"])),
            *((cluster,) if len({row["cluster"] for row in rows}) > 1 else ()),
            about,
            Field("event", _kind_and_text, wraps=WORDS),
            cause,
        )
    return (
        Field(f"time ({clock.zone})", lambda row: clock.iso(row["occurred_not_after"])),
        cluster,
        about,
        Field("event", lambda row: str(row["event"])),
        Field("what", lambda row: what(as_event(row))),
        cause,
    )


def _kind_and_text(row: Row) -> str:
    said = what(as_event(row))
    return f"{row['event']}: {said}" if said else str(row["event"])


def event_style(row: Row) -> str:
    """Return the colour of an event, by severity."""
    return style_of(row["event"])


def row_of(group: EventGroup) -> Row:
    """Return what happened at one moment as a row of ``MOMENT_COLUMNS``, and the group itself for ``moment_fields``."""
    first = group.events[0]
    common = ("occurred_not_before", "occurred_not_after", "cluster_id", "cluster", "source", "cause", "evidence")
    partitions = dict.fromkeys(subject(event) for event in group.events if event.partition is not None)
    return {
        **{name: getattr(first, name) for name in common},
        "candidates": list(first.candidates),
        "subject": group.subject,
        "what": group.what,
        "partitions": list(partitions),
        "events": len(group.events),
        "group": group,
    }


def moment_fields(rows: Iterable[Row], clock: Clock, *, is_line: bool) -> tuple[Field, ...]:
    """Return the columns of what happened at one moment; the arguments are those of ``event_fields``."""
    as_text = clock.iso if is_line else clock.short
    has_cluster = is_line or len({row["cluster"] for row in rows}) > 1
    return (
        Field(f"time ({clock.zone})", lambda row: as_text(row["occurred_not_after"])),
        *((Field("cluster", lambda row: str(row["cluster"])),) if has_cluster else ()),
        Field("subject", lambda row: str(row["subject"])),
        Field("what", lambda row: str(row["what"]), wraps=WORDS),
        Field("cause", lambda row: row["group"].cause, wraps=WORDS, below=1),
    )


def moment_style(row: Row) -> str:
    """Return the colour of the worst that happened."""
    return str(row["group"].style)


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

    ``read`` reads the newest N events, or all of them, oldest first.
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
