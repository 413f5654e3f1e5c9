"""The ``incidents`` table: every incident, with the version of the change log up to which it was computed.

Incidents that may still change are in separate files, which each write replaces; final ones are appended. So the cost
of a write depends on the open incidents only. The row of an open incident holds what the fold needs to continue it, so
a start reads these rows and the changes after their version, and nothing older.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from streaming.changes.conditions.fold import ConditionFold
from streaming.changes.incidents.document import decode_incident
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.changes.incidents.short_ids import IncidentNumbers
from streaming.contracts.identifiers import DAY
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES
from streaming.delta.changes.history import unread_upto
from streaming.delta.incidents.closed import IncidentCounts, counted, retained
from streaming.delta.incidents.conditions import COMMITTED, ConditionsTable
from streaming.delta.incidents.contexts import read_contexts, read_harmed
from streaming.delta.incidents.rows import SCHEMA, incident_row, rows_of
from streaming.delta.log.cluster_files import read_files
from streaming.delta.log.definitions import rows_to_arrow
from streaming.delta.log.maintenance import KEEP_ALL, Maintenance, RetentionPolicy, expires_by
from streaming.delta.log.queries import plain
from streaming.delta.log.storage import read_file
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.log.writer import Writer
from streaming.delta.state import as_of_version

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from streaming.changes.incidents.incident import Incident
    from streaming.changes.incidents.short_ids import NumberStep
    from streaming.changes.state import ConfiguredTimes
    from streaming.contracts.conditions import Spell
    from streaming.delta.store.place import Place

VERSIONS_WITHOUT_NEWS: Final = 500
SECONDS_WITHOUT_NEWS: Final = 3600.0
"""After so many versions or so long without an incident the applied version is committed anyway: a start reads the
changes after it again, and the expiry of history waits for it."""
FILES_BEFORE_MERGING: Final = 32
"""Number of files that are merged into one; each write that ends an incident adds a file."""
_NEVER: Final = -1
_RESTARTED: Final = "restarted"
"""Transaction with the version up to which expired changes were missed and reported."""
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
        self._final: dict[str, dict[str, Any]] = {}  # not written yet
        self._open_files: set[str] = set()
        self._numbers = IncidentNumbers(self._writer.transaction_version)
        self._conditions = ConditionsTable(directory, policy)
        self._read_open()
        self.version = self._written = as_of_version(self._writer)
        self._written_at = time.monotonic()
        self._merged_on = _NEVER
        self._directory, self._gaps = directory, gaps
        self._fold: IncidentRows | None = None
        is_behind = not self._conditions.go_back(self._writer.transaction_version(COMMITTED) or 0)
        was_off = self._end_where_changes_expired(unread_upto(directory))
        is_new = self._writer.transaction_version(COMMITTED) is None
        if self.version != BEFORE_FIRST and (is_behind or was_off or is_new):
            self._reconcile()

    def _reconcile(self) -> None:
        """Make the spells agree with partitions, brokers and incidents as they are: rows in between are missing."""
        fold = IncidentRows(self._directory, self._gaps, self.version, self.continued)
        self._conditions.put(fold.reconciled(), {key: row["short_id"] for key, row in self._open.items()})
        self._write({})

    def _read_open(self) -> None:
        """Read the files of incidents that may still change."""
        self._open_files = set()
        for file in self._writer.files():
            carried = read_file(self._path, file, ["carried"])["carried"]
            if carried.null_count < len(carried):
                self._open_files.add(file)
                self._open |= {row["incident_id"]: row for row in plain(self._rows_of([file])).to_pylist()}

    def _rows_of(self, files: Iterable[str]) -> pa.Table:
        return read_files(self._path, INCIDENTS, sorted(files))

    @property
    def continued(self) -> Continued:
        """Input of a fold that continues from here."""
        return Continued(tuple(row["carried"] for row in self._open.values()), self._conditions.spells)

    def _end_where_changes_expired(self, expired_upto: int) -> bool:
        """Return whether changes have expired unread, as the query was off for so long; then end open incidents.

        Continuing them would count them as lasting until now. An incident that does last until now is found again,
        because the newest of the expired changes of each partition and broker are still there.
        """
        is_new = self.version == BEFORE_FIRST
        if is_new or expired_upto <= max(self.version, self._writer.transaction_version(_RESTARTED) or BEFORE_FIRST):
            return False
        for incident in map(decode_incident, self.continued.incidents):
            if incident.closed_at is None:
                incident.release()
                incident.closed_at = incident.updated_at
            row = incident_row(incident, self.version, may_go_on=False)
            before = self._open.pop(incident.incident_id)
            summary = row["summary"] + (_END_UNKNOWN if before["closed_at"] is None else "")
            self._final[incident.incident_id] = row | {"summary": summary, "short_id": before["short_id"]}
        self._write({_RESTARTED: expired_upto})
        _log.warning(
            "the query incidents did not run for longer than history is kept: of the changes of versions %d to %d only "
            "the newest of each partition and broker are left, so incidents of that time are missing or incomplete",
            self.version + 1,
            expired_upto,
        )
        return True

    def _write(self, transactions: Mapping[str, int]) -> None:
        """Replace the files of open incidents, and append those that became final; now and then merge files."""
        self._conditions.write(self.version)
        final, merged, expired = self._with_older()
        rows = [rows_to_arrow(list(self._open.values()), SCHEMA), final]
        added = self._writer.exchange(
            [each for each in rows if len(each)],
            self._open_files | merged,
            {
                PARTITION_CHANGES.name: self.version,
                COMMITTED: self._conditions.committed,
                **transactions,
                **counted(self._writer, expired),
                **self._numbers.moved,
            },
            is_new_data=True,
        )
        self._final = {}
        self._numbers.are_stored()
        self._open_files = set(added[0]) if self._open else set()
        self._maintenance.after_commit()
        self._written, self._written_at = self.version, time.monotonic()

    def _with_older(self) -> tuple[pa.Table, set[str], IncidentCounts]:
        """Return the final rows to write, the files that they replace, and the counts of incidents that expire.

        Files are merged, and rows expire, with the first write of a day, and if there are many files.
        """
        final, now = rows_to_arrow(list(self._final.values()), SCHEMA), self._policy.clock()
        files = self._writer.files().keys() - self._open_files
        if self._merged_on == now // DAY and len(files) < FILES_BEFORE_MERGING:
            return final, set(), Counter()
        self._merged_on = now // DAY
        closed = pa.concat_tables([self._rows_of(files), final])
        rows, expired = retained(closed, self._policy.days, expires_by(self._writer, self._policy), self._open.keys())
        return rows, files, expired

    def check_ours(self) -> None:
        """Raise ``TableRefused`` if a later writer has claimed the table, or that of conditions."""
        self._writer.check_ours()
        self._conditions.check_ours()

    def apply(self, added: Iterable[tuple[int, pa.Table]]) -> int:
        """Apply versions of the change log, oldest first, except those applied already; return how many rows.

        Raises:
            TableRefused: another job writes the table; nothing was written, and this object must be opened again.
        """
        if self._fold is None:
            self._fold = IncidentRows(self._directory, self._gaps, self.version, self.continued)
        fresh = [(version, rows) for version, rows in added if version > self.version]
        self.put([self._fold.fold(fresh)], max((version for version, _ in fresh), default=self.version))
        return sum(rows.num_rows for _, rows in fresh)

    def hand_over(self) -> None:
        """Let another fold continue from here; the incidents that it changes go to :meth:`put`."""
        self._fold = None
        self.save()

    def save(self) -> None:
        """Store the applied version, unless the table has it."""
        if self.version > self._written:
            self._write({})

    def put(self, folded: Sequence[FoldedIncidents], version: int) -> None:
        """Write what folds have made of the rows up to a version of the change log; raises as :meth:`apply` does."""
        is_changed = any(each.changed or each.spells for each in folded)
        given = self._numbers.follow(step for each in folded for step in each.steps)
        short_ids = {incident_id: row["short_id"] for incident_id, row in self._open.items()} | given
        for incident_id, row, may_go_on in (incident for each in folded for incident in each.changed):
            self._open.pop(incident_id, None)
            short_id = short_ids.get(incident_id)
            (self._open if may_go_on else self._final)[incident_id] = row | {"short_id": short_id}
        self._conditions.put(dict(spell for each in folded for spell in each.spells), short_ids)
        self.version = version
        is_late = time.monotonic() - self._written_at >= SECONDS_WITHOUT_NEWS and self.version > self._written
        if is_changed or is_late or self.version - self._written >= VERSIONS_WITHOUT_NEWS:
            self._write({})


class ChangedIncident(NamedTuple):
    """The row of an incident that changed; ``may_go_on``: it may still change."""

    incident_id: str
    row: dict[str, Any]
    may_go_on: bool


class FoldedIncidents(NamedTuple):
    """The incidents that a fold has changed, what its rows mean for their numbers, and the spells of conditions.

    Spells are with their ids; None: it was withdrawn.
    """

    changed: Sequence[ChangedIncident] = ()
    steps: Sequence[NumberStep] = ()
    spells: Sequence[tuple[str, Spell | None]] = ()


class Continued(NamedTuple):
    """Input of a fold that continues: the incidents that may still change, encoded, and the newest spells."""

    incidents: Sequence[str] = ()
    spells: Sequence[Spell] = ()


class IncidentRows:
    """Folds changes of some clusters, or of all, into rows of incidents."""

    def __init__(
        self,
        directory: Place,
        gaps: IncidentGaps,
        version: int,
        continued: Continued,
        clusters: Collection[str] | None = None,
    ) -> None:
        """Continue after a version of the change log, for all clusters or some."""
        contexts = {} if version == BEFORE_FIRST else read_contexts(directory, version, clusters)
        incidents = map(decode_incident, continued.incidents)
        own = (each for each in incidents if clusters is None or each.cluster_id in clusters)
        spells = (each for each in continued.spells if clusters is None or each.cluster_id in clusters)
        self._directory, self._gaps, self._conditions = directory, gaps, ConditionFold(spells)
        self._incidents = IncidentFold(gaps, own, contexts, self._conditions.follow)

    def reconciled(self) -> Mapping[str, Spell | None]:
        """Make the spells agree with what is, and return those that have changed."""
        harmed = read_harmed(self._directory)
        for cluster_id, context in self._incidents.contexts.items():
            incidents = self._incidents.of_cluster(cluster_id)
            self._conditions.reconcile(cluster_id, context, incidents, harmed.get(cluster_id, ()))
        return self._conditions.take_changed()

    def fold(self, added: Iterable[tuple[int, pa.Table]]) -> FoldedIncidents:
        """Apply versions of the change log, oldest first."""
        changed: dict[str, tuple[Incident, int, ConfiguredTimes]] = {}
        steps: list[NumberStep] = []
        for version, rows in added:
            for incident in self._incidents.fold(rows_of(rows, version)):
                changed[incident.incident_id] = incident, version, self._incidents.times(incident.cluster_id)
            steps += self._incidents.number_steps
        spells = tuple(self._conditions.take_changed().items())
        return FoldedIncidents([self._changed(*each) for each in changed.values()], steps, spells)

    def _changed(self, incident: Incident, version: int, times: ConfiguredTimes) -> ChangedIncident:
        may_go_on = self._incidents.remembered(incident)
        row = incident_row(incident, version, times, self._gaps, may_go_on=may_go_on)
        return ChangedIncident(incident.incident_id, row, may_go_on)
