"""Incidents as rows, open ones first, and their columns on a terminal. Knows their table, not how they are derived."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.event_filter import EventFilter
from exporters.read_model.events import INCIDENT_COLUMNS, without_running_times
from exporters.read_model.incident_ids import Merges, findable_names, ids_of, names_used, others_names, shown_id
from exporters.read_model.snapshot import is_recovered
from exporters.read_model.times import SECOND, Clock, span
from exporters.terminal.events import history
from exporters.terminal.table_layout import SENTENCE, WORDS, Field
from streaming.contracts.events import PLANNED_CLASSES, IncidentClass, Severity
from streaming.contracts.tables import CLUSTER_STATE_TABLE, INCIDENTS, SOURCE_PROGRESS
from streaming.delta.log.queries import columns_of, open_ours, query, quoted
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from exporters.read_model.unreadable import UnreadableTables
    from exporters.terminal.output import Row
    from streaming.delta.store.place import Place
    from streaming.name_patterns import NamePatterns

_LAST_OBSERVED: Final = (
    'SELECT cluster_id, "cluster", CAST(max(observed_until) AS BIGINT) AS newest FROM rows '
    "WHERE channel = 'replication' AND source_kind <> 'none' "
    'GROUP BY cluster_id, "cluster" ORDER BY "cluster", cluster_id'
)
_STYLES: Final = {IncidentClass.UNCLEAN_ELECTION: "bold red", **dict.fromkeys(PLANNED_CLASSES, "")}


def read_incidents(tables: Place) -> list[dict[str, Any]]:
    """Read every incident, times in microseconds: open before closed, newest first."""
    table = open_ours(tables, INCIDENTS)
    if table is None:
        return []
    incidents = query(table, f"SELECT {quoted(INCIDENT_COLUMNS)} FROM rows")  # noqa: S608 - our own columns
    columns = columns_of(incidents, INCIDENT_COLUMNS)
    listed = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    rows = map(without_running_times, listed)
    return sorted(rows, key=lambda row: (row["closed_at"] is not None, -row["opened_at"], row["incident_id"]))


def last_observed(tables: Place, unreadable: UnreadableTables) -> list[Row]:
    """Read when each cluster was observed last: its id, its name, and ``newest`` in microseconds; none before that."""
    with unreadable.collected():
        if (table := open_ours(tables, SOURCE_PROGRESS)) is not None:
            columns = columns_of(query(table, _LAST_OBSERVED), ("cluster_id", "cluster", "newest"))
            rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
            return [row for row in rows if row["newest"] is not None]
    return []


def read_names(tables: Place, unreadable: UnreadableTables) -> dict[str, str]:
    """Read the name that each cluster has now, by its id; empty while that is unknown."""
    with unreadable.collected():
        if (table := open_ours(tables, CLUSTER_STATE_TABLE)) is not None:
            rows = query(table, 'SELECT cluster_id, "cluster" FROM rows')
            return dict(zip(rows["cluster_id"].to_pylist(), rows["cluster"].to_pylist(), strict=True))
    return {}


def is_of(chosen: NamePatterns, names: Mapping[str, str], row: Row) -> bool:
    """Return whether an incident is of a chosen cluster, by its name then or now, or its id.

    ``names`` is of :func:`read_names`.
    """
    return chosen(row["cluster"], row["cluster_id"], names.get(row["cluster_id"], row["cluster"]))


def one_of(rows: Sequence[Row], any_id: str, names: Mapping[str, str]) -> Row:
    """Return the incident that an id finds: a short id, under any name of its cluster, or the beginning of a long one.

    Args:
        rows: all incidents.
        any_id: the id. Of one that was merged into another it finds the other.
        names: of :func:`read_names`.

    Raises:
        ConfigurationError: there is none, or several long ids begin so.
    """
    used = names_used(rows)
    every = {each: {*used.get(each, ()), *([names[each]] if each in names else ())} for each in {*used, *names}}
    findable = {each: findable_names(used[each], names.get(each), others_names(each, every)) for each in used}
    matching = [row for row in rows if any_id in ids_of(row, findable[row["cluster_id"]])]
    matching = matching or [row for row in rows if row["incident_id"].startswith(any_id)]
    merges = Merges(rows)
    standing = {merges.standing(row["incident_id"]) for row in matching}
    if len(standing) != 1:
        ambiguous = f"{len(standing)} incidents begin with {any_id!r}; give more of the id" if standing else ""
        raise ConfigurationError(ambiguous or f"there is no incident {any_id!r}; isrwatch incidents --all lists them")
    (incident_id,) = standing
    return next((row for row in rows if row["incident_id"] == incident_id), matching[0])


def merged_into(incident: Row, rows: Iterable[Row]) -> list[str]:
    """Return the ids of the incidents that were merged into one."""
    return sorted(map(shown_id, Merges(rows).parts().get(incident["incident_id"], ())))


def evidence(tables: Place, incident: Row, unreadable: UnreadableTables) -> list[dict[str, Any]]:
    """Read the events that an incident lists as its evidence, oldest first."""
    selection = EventFilter(
        clusters=(incident["cluster_id"],), since=incident["opened_at"], until=incident["updated_at"]
    )
    ids = set(incident["event_ids"] or ())
    return [row for row in history(tables, selection, unreadable) if row["event_id"] in ids]


def all_events(incident: Row, shown: int) -> str:
    """Return how many events are shown, and the command that shows every event of that time if these are not all."""
    clock, total = Clock(0), incident["evidence_events"]
    if shown >= total:
        return f"{shown} of {total} events"
    since, until = clock.iso(incident["opened_at"]), clock.iso(incident["updated_at"] + SECOND // 1_000)
    options = shlex.join(["--cluster", incident["cluster"], "--since", since, "--until", until, "--limit", "0"])
    return f"{shown} of {total} events; all of that time: isrwatch events {options}"


def explained_by(incident: Row, rows: Iterable[Row]) -> list[str]:
    """Return the ids of the incidents that account for the harm within planned work: the harmful ones of that time."""
    if incident["severity"] != Severity.INFO or not _is_harmed(incident):
        return []
    return [
        shown_id(row)
        for row in rows
        if row["cluster_id"] == incident["cluster_id"]
        and row["merged_into"] is None
        and row["severity"] != Severity.INFO
        and _is_harmed(row)
        and row["opened_at"] <= incident["updated_at"]
        and incident["opened_at"] <= row["updated_at"]
    ]


def _is_harmed(row: Row) -> bool:
    return bool(row["under_min_isr_peak"] or row["offline_peak"])


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
