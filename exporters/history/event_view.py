"""How an event of the history looks: its columns for people, and its colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters import terminal
from exporters.history.output import Field, Format
from exporters.snapshot import Event

if TYPE_CHECKING:
    from exporters.history.moments import Clock
    from exporters.history.output import Row

ROOMY: Final = 100
"""Narrower terminals show less of each event, but that whole."""


def event_fields(clock: Clock, form: Format, width: int) -> tuple[Field, ...]:
    """Name what people see of an event; a line for a pipe has the whole time, and the cluster.

    Args:
        clock: writes the times.
        form: a table, or lines.
        width: of the terminal.
    """
    zone = "local" if clock.local else "UTC"
    subject = Field("subject", lambda row: terminal.subject(as_event(row)))
    if form is Format.TABLE and width < ROOMY:
        return (
            Field(
                f"time ({zone})", lambda row: clock.short(row["occurred_not_after"]).partition(".")[0], is_whole=True
            ),
            subject,
            Field("what", lambda row: terminal.what(as_event(row)) or str(row["event"])),
            Field("cause", lambda row: row["cause"] or ""),
        )
    told = clock.short if form is Format.TABLE else clock.iso
    return (
        Field(f"time ({zone})", lambda row: told(row["occurred_not_after"]), is_whole=True),
        Field("cluster", lambda row: str(row["cluster"])),
        subject,
        Field("event", lambda row: str(row["event"])),
        Field("what", lambda row: terminal.what(as_event(row))),
        Field("cause", lambda row: terminal.why(as_event(row))),
    )


def event_style(row: Row) -> str:
    """Colour an event by how bad it is."""
    return terminal.style_of(row["event"])


def as_event(row: Row) -> Event:
    """Read a row of ``replication_events`` as the value that the terminal views take."""
    known: dict[str, Any] = {name: row[name] for name in Event._fields}
    lists = {name: tuple(row[name] or ()) for name in ("candidates", "left_isr", "joined_isr")}
    return Event(**{**known, **lists})
