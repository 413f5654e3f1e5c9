"""Incidents as rows, the open ones first, and how they look. Knows their table, nothing of how they arise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from exporters.columns import columns_of
from exporters.history.events import history
from exporters.history.moments import SECOND, span
from exporters.history.output import Field
from exporters.history.wanted import Wanted
from exporters.incidents import INCIDENT_COLUMNS
from streaming.contracts.incidents import IncidentClass
from streaming.contracts.tables import INCIDENTS
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from exporters.history.moments import Clock
    from exporters.history.output import Row

_STYLES: Final = {
    IncidentClass.UNCLEAN_ELECTION: "bold red",
    IncidentClass.CONTROLLED_SHUTDOWN: "",
    IncidentClass.ROLLING_RESTART: "",
    IncidentClass.REASSIGNMENT: "",
}


def read_incidents(tables: Path) -> list[dict[str, Any]]:
    """Read every incident, times in microseconds: the open ones first, of each the newest first."""
    path = tables / INCIDENTS.name
    if not DeltaTable.is_deltatable(str(path)):
        return []
    names = ", ".join(f'"{name}"' for name in INCIDENT_COLUMNS)
    query = f"SELECT {names} FROM incidents"  # noqa: S608 - our own columns
    found = pa.table(QueryBuilder().register("incidents", DeltaTable(str(path))).execute(query))
    columns = columns_of(found, INCIDENT_COLUMNS)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return sorted(rows, key=lambda row: (row["closed_at"] is not None, -row["opened_at"], row["incident_id"]))


def one_of(rows: Iterable[Row], text: str) -> Row:
    """Find the one incident whose id begins so.

    Raises:
        ConfigurationError: there is none, or more than one.
    """
    found = [row for row in rows if row["incident_id"].startswith(text)]
    whole = [row for row in found if row["incident_id"] == text] or found
    if len(whole) != 1:
        many = f"{len(whole)} incidents begin with {text!r}; write more of the id" if whole else ""
        raise ConfigurationError(many or f"no incident begins with {text!r}; isrwatch incidents --all lists them")
    return whole[0]


def evidence(tables: Path, incident: Row) -> list[dict[str, Any]]:
    """Read the events that an incident names, oldest first."""
    wanted = Wanted(clusters=(incident["cluster_id"],), since=incident["opened_at"], until=incident["updated_at"])
    ids = set(incident["event_ids"] or ())
    return [row for row in history(tables, wanted) if row["event_id"] in ids]


def incident_fields(clock: Clock) -> tuple[Field, ...]:
    """Name what people see of an incident in a list."""
    return (
        Field("opened", lambda row: clock.short(row["opened_at"]).partition(".")[0], is_whole=True),
        Field("lasted", lambda row: lasted(row, clock), is_number=True),
        Field("class", lambda row: str(row["incident_class"]), is_whole=True),
        Field("suspects", suspects),
        Field("summary", lambda row: str(row["summary"])),
        Field("id", lambda row: str(row["incident_id"])),
    )


def lasted(row: Row, clock: Clock) -> str:
    """Tell how long an incident took, or that it is open and since how long."""
    if row["closed_at"] is None:
        return f"open {span(max(0, clock.now - row['opened_at']) / SECOND)}"
    return span((row["closed_at"] - row["opened_at"]) / SECOND)


def suspects(row: Row) -> str:
    """Name who is to blame, the likeliest first."""
    blamed = sorted(row["suspects"] or (), key=lambda told: -(told["score"] or 0))
    return ", ".join(f"{told['broker']} ({told['score']:.2f})" for told in blamed if told["score"] is not None) or "?"


def incident_style(row: Row) -> str:
    """Colour an incident: closed ones recede."""
    return "dim" if row["closed_at"] is not None else _STYLES.get(row["incident_class"], "red")
