"""The newest events, kept in memory: rows of changes exploded as in ``replication_events``; whom an event concerns."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow.compute as pc

from exporters.read_model.incident_ids import Merges, names_used, others_names
from exporters.read_model.snapshot import ClusterIncidents, EventRow
from streaming.contracts.tables import AS_OF, INCIDENTS
from streaming.delta.changes.reader import events_of
from streaming.delta.log.queries import columns_of, rows_as

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from exporters.read_model.draft import SnapshotDraft


def newest_events(changes: pa.Table, limit: int) -> list[EventRow]:
    """Return the events of some changes, oldest first; of more than the limit the newest."""
    if changes.num_rows > limit:
        changes = changes.filter(pc.greater(pc.list_value_length(changes["events"]), 0))
    events = events_of(changes.slice(max(0, changes.num_rows - limit)))
    columns = columns_of(events, EventRow._fields)
    for name in ("candidates", "left_isr", "joined_isr"):
        columns[name] = [() if value is None else value for value in columns[name]]
    rows = rows_as(EventRow, columns, events.num_rows)
    # In the order of time within each version: what a person reads from top to bottom.
    versions = events["version"].to_pylist()
    order = sorted(range(len(rows)), key=lambda index: (versions[index], rows[index].occurred_not_after))
    return [rows[index] for index in order][-limit:]


def brokers_of(row: Mapping[str, Any]) -> set[int]:
    """Return the brokers that an event concerns."""
    single = {row["event_broker"], row["leader_before"], row["leader_after"]}
    return (single | {*(row["left_isr"] or ()), *(row["joined_isr"] or ())}) - {None}


# Incidents, read from their table: the open ones as rows, the closed ones as counts.


Row = dict[str, Any]

_CARRIED: Final = "carried"
# Columns that only the job needs are not read.
_OWN: Final = frozenset({_CARRIED, *(column.name for column in AS_OF)})
_SHORT_ID: Final = "short_id"
INCIDENT_COLUMNS: Final = (_SHORT_ID, *(name for name in INCIDENTS.column_names() if name not in {*_OWN, _SHORT_ID}))
# State that the job carries of an incident can be large; without any the incident can change no more.
IS_OVER_SELECTED: Final = f'"{_CARRIED}" IS NULL AS is_over'


class IncidentRow(NamedTuple):
    """Columns read of every incident; ``is_over``: it can change no more."""

    incident_id: str
    short_id: str | None
    cluster_id: str
    cluster: str
    incident_class: str
    closed_at: int | None
    merged_into: str | None
    is_over: bool


def put_incidents(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over all of ``incidents``; closed ones are read only to be counted."""
    over: dict[str, Counter[str]] = defaultdict(Counter)
    for (cluster_id, incident_class), count in draft.expired_incidents.items():
        over[cluster_id][incident_class] += count
    still_open: dict[str, list[Row]] = defaultdict(list)
    every = rows_as(IncidentRow, columns_of(rows, IncidentRow._fields), rows.num_rows)
    for index, row in enumerate(every):
        if row.closed_at is None:
            still_open[row.cluster_id].append(_row(rows.slice(index, 1)))
        elif row.is_over and row.merged_into is None:
            over[row.cluster_id][row.incident_class] += 1
    names = names_used(row._asdict() for row in every)
    parts = Merges(row._asdict() for row in every if row.merged_into is not None).parts()
    draft.put_incidents({
        cluster_id: ClusterIncidents(
            open=tuple(sorted(still_open[cluster_id], key=_newest_first)),
            over=over[cluster_id],
            parts={each["incident_id"]: tuple(parts.get(each["incident_id"], ())) for each in still_open[cluster_id]},
            names=names.get(cluster_id, frozenset()),
            others_names=others_names(cluster_id, names),
        )
        for cluster_id in {*over, *still_open, *names}
    })  # fmt: skip


def drop_incidents(draft: SnapshotDraft) -> None:
    """Forget the incidents of every cluster: whether there are any is unknown."""
    draft.put_incidents(None)


def without_running_times(row: Row) -> Row:
    """Leave out times that still run: the table has them as of the last change, and a gap may have come since."""
    for state in ("under_replicated", "under_min_isr", "offline"):
        if row["closed_at"] is None and row[f"{state}_now"]:
            row |= {f"{state}_seconds": None, f"{state}_partition_seconds": None}
    return row


def _row(one: pa.Table) -> Row:
    return without_running_times({name: values[0] for name, values in columns_of(one, INCIDENT_COLUMNS).items()})


def _newest_first(row: Row) -> tuple[int, str]:
    return -row["opened_at"], row["incident_id"]
