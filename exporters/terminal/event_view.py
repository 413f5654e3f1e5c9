"""The columns and the colour of an event on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.snapshot import EventRow
from exporters.terminal import live_view
from exporters.terminal.output import Field, RowFormat

if TYPE_CHECKING:
    from exporters.terminal.output import Row
    from exporters.terminal.time_parsing import Clock

WIDE: Final = 100
"""Narrower terminals show fewer columns, but those in full."""


def event_fields(clock: Clock, row_format: RowFormat, width: int) -> tuple[Field, ...]:
    """Return the columns of an event; a line for a pipe has the full time and the cluster.

    Args:
        clock: formats the times.
        row_format: table, or lines.
        width: of the terminal, in characters.
    """
    zone = "local" if clock.local else "UTC"
    subject = Field("subject", lambda row: live_view.subject(as_event(row)))
    if row_format is RowFormat.TABLE and width < WIDE:
        return (
            Field(
                f"time ({zone})", lambda row: clock.short(row["occurred_not_after"]).partition(".")[0], is_whole=True
            ),
            subject,
            Field("what", lambda row: live_view.what(as_event(row)) or str(row["event"])),
            Field("cause", lambda row: row["cause"] or ""),
        )
    time_text = clock.short if row_format is RowFormat.TABLE else clock.iso
    return (
        Field(f"time ({zone})", lambda row: time_text(row["occurred_not_after"]), is_whole=True),
        Field("cluster", lambda row: str(row["cluster"])),
        subject,
        Field("event", lambda row: str(row["event"])),
        Field("what", lambda row: live_view.what(as_event(row))),
        Field("cause", lambda row: live_view.why(as_event(row))),
    )


def event_style(row: Row) -> str:
    """Return the colour of an event, by severity."""
    return live_view.style_of(row["event"])


def as_event(row: Row) -> EventRow:
    """Convert a row of ``replication_events`` to the value that the terminal views take."""
    values: dict[str, Any] = {name: row[name] for name in EventRow._fields}
    lists = {name: tuple(row[name] or ()) for name in ("candidates", "left_isr", "joined_isr")}
    return EventRow(**{**values, **lists})
