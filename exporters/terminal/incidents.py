"""Incidents as rows, open ones first, and their columns on a terminal. Knows their table, not how they are derived."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from exporters.read_model.incident_ids import shown_id
from exporters.read_model.snapshot import is_recovered
from exporters.read_model.times import SECOND, Clock, span
from exporters.terminal.table_layout import SENTENCE, WORDS, Field
from streaming.contracts.events import PLANNED_CLASSES, IncidentClass
from streaming.contracts.tables import SOURCE_PROGRESS
from streaming.delta.log.queries import columns_of, open_ours, query

if TYPE_CHECKING:
    from exporters.read_model.unreadable import UnreadableTables
    from exporters.terminal.output import Row
    from streaming.delta.store.place import Place

_LAST_OBSERVED: Final = (
    'SELECT cluster_id, "cluster", CAST(max(observed_until) AS BIGINT) AS newest FROM rows '
    "WHERE channel = 'replication' AND source_kind <> 'none' "
    'GROUP BY cluster_id, "cluster" ORDER BY "cluster", cluster_id'
)
_STYLES: Final = {IncidentClass.UNCLEAN_ELECTION: "bold red", **dict.fromkeys(PLANNED_CLASSES, "")}


def last_observed(tables: Place, unreadable: UnreadableTables) -> list[Row]:
    """Read when each cluster was observed last: its id, its name, and ``newest`` in microseconds; none before that."""
    with unreadable.collected():
        if (table := open_ours(tables, SOURCE_PROGRESS)) is not None:
            columns = columns_of(query(table, _LAST_OBSERVED), ("cluster_id", "cluster", "newest"))
            rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
            return [row for row in rows if row["newest"] is not None]
    return []


def all_events(incident: Row, shown: int) -> str:
    """Return how many events are shown, and the command that shows every event of that time if these are not all."""
    clock, total = Clock(0), incident["evidence_events"]
    if shown >= total:
        return f"{shown} of {total} events"
    since, until = clock.iso(incident["opened_at"]), clock.iso(incident["updated_at"] + SECOND // 1_000)
    options = shlex.join(["--cluster", incident["cluster"], "--since", since, "--until", until, "--limit", "0"])
    return f"{shown} of {total} events; all of that time: isrwatch events {options}"


def incident_fields(clock: Clock) -> tuple[Field, ...]:
    """Return the columns of an incident in a list."""
    return (
        Field("id", shown_id),
        Field("opened", lambda row: clock.short(row["opened_at"]).partition(".")[0]),
        Field("lasted", lambda row: lasted(row, clock), is_number=True),
        Field("class", lambda row: str(row["incident_class"])),
        Field("suspects", suspects, wraps=WORDS),
        Field("summary", lambda row: str(row["summary"]), wraps=SENTENCE, below=1),
    )


def lasted(row: Row, clock: Clock) -> str:
    """Format the duration of an incident, so far if it is open and has not recovered."""
    if is_recovered(row):
        return f"recovered after {_so_far(row)}"
    if row["closed_at"] is None:
        return f"open {span(max(0, clock.now - row['opened_at']) / SECOND)}"
    return span((row["closed_at"] - row["opened_at"]) / SECOND)


def closed(row: Row, clock: Clock) -> str:
    """Format when an incident was closed, or when an open one recovered and what it waits for."""
    if row["closed_at"] is not None:
        return f"{clock.iso(row['closed_at'])}, after {lasted(row, clock)}"
    if not is_recovered(row):
        return "still open"
    why = " for more restarts" if row["is_rolling"] else ", if nothing more happens,"
    key = f"job.incident_{'rolling_' if row['is_rolling'] else ''}gap"
    until = f"kept open{why} until {clock.iso(row['closes_at'])} ({key})"
    return f"not yet: recovered after {_so_far(row)}, at {clock.iso(row['recovered_at'])}; {until}"


def _so_far(row: Row) -> str:
    return span((row["updated_at"] - row["opened_at"]) / SECOND)


def suspects(row: Row) -> str:
    """List the suspected brokers with their scores, highest first; "?" if none was found.

    Who was stopped by an order is to blame for nothing, so a score of 0 makes no suspect.
    """
    scored = [suspect for suspect in row["suspects"] or () if suspect["score"] is not None]
    blamed = sorted((suspect for suspect in scored if suspect["score"]), key=lambda suspect: -suspect["score"])
    listed = ", ".join(f"{suspect['broker']} ({suspect['score']:.2f})" for suspect in blamed)
    return listed or ("none" if scored else "?")


def incident_style(row: Row) -> str:
    """Return the colour of an incident; closed ones are dimmed."""
    return "dim" if row["closed_at"] is not None else _STYLES.get(row["incident_class"], "red")
