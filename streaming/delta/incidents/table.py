"""The ``incidents`` table: every incident, written with the version of the change log it is computed up to.

Those that may still change lie in a file of their own, which each write replaces; those that are final are appended.
So a write costs what is open, however many incidents there were. The row of an open incident holds what the fold needs
to continue it, so a start reads these rows and the changes after their version, and nothing older.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.incidents.context import BASELINE, ClusterContext
from streaming.changes.incidents.document import decode_incident
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.observations import SourceKind
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    INCIDENTS,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
)
from streaming.delta.changes.history import unread_upto
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.incidents.closed import IncidentCounts, counted, retained
from streaming.delta.incidents.rows import SCHEMA, in_sync_of, incident_row, rows_of
from streaming.delta.log.definitions import arrow_schema, rows_to_arrow
from streaming.delta.log.maintenance import KEEP_ALL, Maintenance, RetentionPolicy
from streaming.delta.log.queries import open_ours, plain, query, quoted, select
from streaming.delta.log.storage import open_table, read_file
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.log.writer import Writer
from streaming.delta.state import as_of_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streaming.changes.incidents.incident import Incident
    from streaming.changes.state import ConfiguredTimes
    from streaming.delta.store.place import Place

VERSIONS_WITHOUT_NEWS: Final = 500
SECONDS_WITHOUT_NEWS: Final = 3600.0
"""After so many versions or so long without an incident the applied version is committed anyway.

A start reads the rest again, and the expiry of history sees that the query still runs.
"""
FILES_BEFORE_MERGING: Final = 32
"""Each write that ends an incident adds a file. So many are merged into one."""
_MICROS_PER_DAY: Final = 86_400_000_000
_NEVER: Final = -1
_RESTARTED: Final = "restarted"
"""The transaction that says up to which version expired changes were missed, and said so."""
_END_UNKNOWN: Final = "; its end was not seen: the changes after it expired before they were read"
_log: Final = logging.getLogger(__name__)


class IncidentsTable:
    """The only writer of ``incidents``."""

    def __init__(self, directory: Place, gaps: IncidentGaps, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open or create the table below a directory, and continue after its version.

        Raises:
            TableRefused: the table is not ours, or newer than this program.
        """
        self._writer = Writer.opened(directory, INCIDENTS)
        self._path, self._policy = directory / INCIDENTS.name, policy
        self._maintenance = Maintenance(self._writer, policy)
        self._open: dict[str, dict[str, Any]] = {}
        self._final: dict[str, dict[str, Any]] = {}  # not yet in a file of final ones
        self._open_files: set[str] = set()
        self._read_open()
        self.version = self._written = as_of_version(self._writer)
        self._written_at = time.monotonic()
        self._merged_on = _NEVER
        self._end_where_changes_expired(unread_upto(directory))
        contexts = {} if self.version == BEFORE_FIRST else read_contexts(directory, self.version)
        self._gaps, self._incidents = gaps, IncidentFold(gaps, self._carried(), contexts)

    def _read_open(self) -> None:
        """Read the files of incidents that may still change."""
        self._open_files = set()
        for file in self._writer.files():
            carried = read_file(self._path, file, ["carried"])["carried"]
            if carried.null_count < len(carried):
                self._open_files.add(file)
                self._open |= {row["incident_id"]: row for row in plain(self._rows_of([file])).to_pylist()}

    def _rows_of(self, files: Iterable[str]) -> pa.Table:
        """Read files; columns that were added after they were written are null."""
        parts = [SCHEMA.empty_table(), *(read_file(self._path, file) for file in sorted(files))]
        return pa.concat_tables(parts, promote_options="permissive").select(SCHEMA.names).cast(SCHEMA)

    def _carried(self) -> Iterator[Incident]:
        return (decode_incident(row["carried"]) for row in self._open.values())

    def _end_where_changes_expired(self, expired_upto: int) -> None:
        """End what was open when this query was switched off, if changes after its version have expired unread.

        To continue those incidents would count them as lasting until now. What lasts until now is found again: of
        the expired changes the newest of each partition and broker are still there.
        """
        is_new = self.version == BEFORE_FIRST
        if is_new or expired_upto <= max(self.version, self._writer.transaction_version(_RESTARTED) or BEFORE_FIRST):
            return
        for incident in list(self._carried()):
            if incident.closed_at is None:
                incident.release()
                incident.closed_at = incident.updated_at
            row = incident_row(incident, self.version, may_go_on=False)
            was_open = self._open.pop(incident.incident_id)["closed_at"] is None
            self._final[incident.incident_id] = row | {"summary": row["summary"] + (_END_UNKNOWN if was_open else "")}
        self._write({_RESTARTED: expired_upto})
        _log.warning(
            "the query incidents did not run for longer than history is kept: of the changes of versions %d to %d only "
            "the newest of each partition and broker are left, so incidents of that time are missing or incomplete",
            self.version + 1,
            expired_upto,
        )

    def _write(self, transactions: Mapping[str, int]) -> None:
        """Replace the file of what is open, and append what is final since; now and then merge what was appended."""
        final, merged, expired = self._with_older()
        rows = [rows_to_arrow(list(self._open.values()), SCHEMA), final]
        added = self._writer.exchange(
            [each for each in rows if len(each)],
            self._open_files | merged,
            {PARTITION_CHANGES.name: self.version, **transactions, **counted(self._writer, expired)},
            is_new_data=True,
        )
        self._final = {}
        self._open_files = set(added[0]) if self._open else set()
        self._maintenance.after_commit()
        self._written, self._written_at = self.version, time.monotonic()

    def _with_older(self) -> tuple[pa.Table, set[str], IncidentCounts]:
        """Return the final rows to write, the files that they replace, and the counts of those that expire.

        Files are merged, and rows expire, with the first write of a day, and when there are many.
        """
        final, now = rows_to_arrow(list(self._final.values()), SCHEMA), self._policy.clock()
        files = self._writer.files().keys() - self._open_files
        if self._merged_on == now // _MICROS_PER_DAY and len(files) < FILES_BEFORE_MERGING:
            return final, set(), Counter()
        self._merged_on = now // _MICROS_PER_DAY
        rows, expired = retained(pa.concat_tables([self._rows_of(files), final]), self._policy.days, now)
        return rows, files, expired

    def check_ours(self) -> None:
        """Check that no other writer has claimed the table.

        Raises:
            TableRefused: another one has.
        """
        self._writer.check_ours()

    def apply(self, added: Iterable[tuple[int, pa.Table]]) -> int:
        """Apply versions of the change log, oldest first, but those applied already; return how many rows.

        Raises:
            TableRefused: another job writes the table; nothing was written, and this object must be opened again.
        """
        changed: dict[str, tuple[Incident, int, ConfiguredTimes]] = {}
        count = 0
        for version, changes in added:
            if version <= self.version:
                continue
            for incident in self._incidents.fold(rows_of(changes, version)):
                changed[incident.incident_id] = incident, version, self._incidents.times(incident.cluster_id)
            count += changes.num_rows
            self.version = version
        for incident_id, (incident, version, times) in changed.items():
            may_go_on = self._incidents.remembered(incident)
            self._open.pop(incident_id, None)
            rows = self._open if may_go_on else self._final
            rows[incident_id] = incident_row(incident, version, times, self._gaps, may_go_on=may_go_on)
        is_late = time.monotonic() - self._written_at >= SECONDS_WITHOUT_NEWS and self.version > self._written
        if changed or is_late or self.version - self._written >= VERSIONS_WITHOUT_NEWS:
            self._write({})
        return count


# Cluster facts that incidents need besides the changes, as they were after a version, from the state tables.
#
# Each state table may be some versions behind the table of incidents or ahead of it, as a kill left them. The change
# log has what lies between: it is applied, or taken back. Of a broker or a cluster that has changed since, the newest
# row up to that version says what it was.


_Subject = tuple[str, int | None]
"""Id of a cluster, and of a broker; None for the cluster itself."""
_TIMES: Final = ("replica_lag_time_max_ms", "broker_session_timeout_ms")
_TABLE_OF: Final = {
    Subject.CLUSTER: CLUSTER_STATE_TABLE,
    Subject.BROKER: BROKER_STATE_TABLE,
    Subject.PARTITION: PARTITION_STATE_TABLE,
}
_COLUMNS_OF: Final = {
    Subject.CLUSTER: ("cluster_id", "controller", "authority", "sight_until", *_TIMES),
    Subject.BROKER: (
        "cluster_id", "broker", "rack", "is_registered", "is_fenced", "is_shutting_down", "maintenance_leases",
    ),
    Subject.PARTITION: ("cluster_id", "leader", "isr", "is_deleted", "is_diskless"),
}  # fmt: skip


def read_contexts(directory: Place, version: int) -> dict[str, ClusterContext]:
    """Read the context of every cluster by its id, as it was after a version of the change log.

    Args:
        directory: of the tables; one that is not there yet adds nothing.
        version: of ``partition_changes``. If changes after it have expired, what the state tables hold has to do.
    """
    contexts: defaultdict[str, ClusterContext] = defaultdict(ClusterContext)
    as_of: dict[str, int] = {subject: _read_state(directory, subject, contexts) for subject in _TABLE_OF}
    if unread_upto(directory) > version:
        return contexts
    changed_since = set[_Subject]()
    reader = ChangeReader(directory / PARTITION_CHANGES.name, min(version, *as_of.values()))
    for at, rows in reader.poll(max(version, *as_of.values())):
        for row in rows_of(rows, at):
            subject = Subject.PARTITION if row.subject == BASELINE else row.subject
            if (upto := as_of.get(subject)) is None:
                continue  # of sources there is nothing to follow
            if upto < at <= version:
                contexts[row.cluster_id].follow(row)
            elif version < at <= upto and subject == Subject.PARTITION:
                contexts[row.cluster_id].count(row, -1)
            elif version < at <= upto:
                changed_since.add((row.cluster_id, row.broker if subject == Subject.BROKER else None))
    for cluster_id, broker in changed_since:
        _go_back(directory, version, (cluster_id, broker), contexts[cluster_id])
    return contexts


def _go_back(directory: Place, version: int, subject: _Subject, context: ClusterContext) -> None:
    """Set a broker or the cluster to what the newest row up to a version says."""
    cluster_id, broker = subject
    is_it = "subject = 'cluster'" if broker is None else f"subject = 'broker' AND broker = {broker}"
    name = cluster_id.replace("'", "''")
    where = f"{is_it} AND cluster_id = '{name}' AND version <= {version} ORDER BY version DESC, ordinal DESC LIMIT 1"
    newest = select(open_ours(directory, PARTITION_CHANGES), PARTITION_CHANGES, where)
    for row in rows_of(newest, version):
        context.follow(row)
    if not newest.num_rows:
        context.forget(broker)


def _read_state(directory: Place, subject: Subject, contexts: defaultdict[str, ClusterContext]) -> int:
    """Read one state table into the contexts; return the version that it is computed up to."""
    definition = _TABLE_OF[subject]
    table = open_table(directory / definition.name)
    if table is None:
        return BEFORE_FIRST
    # Its own query may not have added new columns yet: they are null.
    schema = pa.schema([arrow_schema(definition).field(name) for name in _COLUMNS_OF[subject]])
    existing = {field.name for field in table.schema().fields}.intersection(schema.names)
    rows = query(table, f"SELECT {quoted(existing)} FROM rows")  # noqa: S608 - our own columns
    rows = pa.concat_tables([schema.empty_table(), rows], promote_options="default")
    if subject is Subject.PARTITION:
        _count_partitions(rows, contexts)
    else:
        put = _put_cluster if subject is Subject.CLUSTER else _put_broker
        for row in _in_micros(rows).to_pylist():
            put(row, contexts[row["cluster_id"]])
    return as_of_version(table)


def _in_micros(rows: pa.Table) -> pa.Table:
    """Return the rows with their moments as numbers."""
    fields = [item.with_type(pa.int64()) if pa.types.is_timestamp(item.type) else item for item in rows.schema]
    return rows.cast(pa.schema(fields))


def _put_cluster(row: dict[str, Any], context: ClusterContext) -> None:
    context.controller = NO_LEADER if row["controller"] is None else row["controller"]
    context.authority = row["authority"] or SourceKind.NONE
    context.blind_since = row["sight_until"] or 0
    context.times = context.times.configured(*(row[name] for name in _TIMES))


def _put_broker(row: dict[str, Any], context: ClusterContext) -> None:
    context.racks[row["broker"]] = row["rack"] or ""
    is_up = bool(row["is_registered"] and not row["is_fenced"])
    context.set_up(row["broker"], is_up=is_up, is_shutting_down=bool(row["is_shutting_down"]))
    context.set_leases(row["broker"], row["maintenance_leases"])


def _count_partitions(rows: pa.Table, contexts: defaultdict[str, ClusterContext]) -> None:
    is_left_out = pc.or_(rows["is_deleted"], pc.fill_null(rows["is_diskless"], False))
    existing = rows.filter(pc.invert(is_left_out)).combine_chunks()
    columns = (existing[name].combine_chunks() for name in ("cluster_id", "leader", "isr"))
    for cluster_id, in_sync in in_sync_of(*columns).items():
        contexts[cluster_id].add_in_sync(in_sync)
