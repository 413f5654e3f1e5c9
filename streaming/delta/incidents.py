"""The ``incidents`` table: every incident, written with the version of the change log it is computed up to.

Those that may still change lie in a file of their own, which each write replaces; those that are final are appended.
So a write costs what is open, however many incidents there were. The row of an open incident holds what the fold needs
to continue it, so a start reads these rows and the changes after their version, and nothing older.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.changes.incidents.document import decode_incident
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES
from streaming.delta.arrow_values import plain
from streaming.delta.closed_incidents import IncidentCounts, counted, retained
from streaming.delta.cluster_contexts import read_contexts
from streaming.delta.definitions import rows_to_arrow
from streaming.delta.file_exchange import exchange_files
from streaming.delta.history import unread_upto
from streaming.delta.incident_rows import SCHEMA, incident_row, rows_of
from streaming.delta.layouts import create_or_upgrade
from streaming.delta.maintenance import KEEP_ALL, Maintenance, RetentionPolicy
from streaming.delta.state_reader import as_of_version
from streaming.delta.storage import read_file
from streaming.delta.table_log import BEFORE_FIRST
from streaming.delta.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from deltalake import DeltaTable

    from streaming.changes.incidents.incident import Incident
    from streaming.changes.state import ConfiguredTimes

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

    def __init__(self, directory: Path, gaps: IncidentGaps, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open or create the table below a directory, and continue after its version.

        Raises:
            TableRefused: the table is not ours, or newer than this program.
        """
        self._table = create_or_upgrade(directory, INCIDENTS)
        self._writer = Writer(self._table)
        self._path, self._policy = directory / INCIDENTS.name, policy
        self._maintenance = Maintenance(self._table, self._path, policy)
        self._open: dict[str, dict[str, Any]] = {}
        self._final: dict[str, dict[str, Any]] = {}  # not yet in a file of final ones
        self._open_files: set[str] = set()
        self._read_open()
        self.version = self._written = as_of_version(self._table)
        self._written_at = time.monotonic()
        self._merged_on = _NEVER
        self._end_where_changes_expired(unread_upto(directory))
        contexts = {} if self.version == BEFORE_FIRST else read_contexts(directory, self.version)
        self._gaps, self._incidents = gaps, IncidentFold(gaps, self._carried(), contexts)

    def _read_open(self) -> None:
        """Read the files of incidents that may still change."""
        self._open_files = set()
        for file in self._table.get_add_actions()["path"].to_pylist():
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

        To go on with those incidents would count them as lasting until now. What lasts until now is found again: of
        the expired changes the newest of each partition and broker are still there.
        """
        is_new = self.version == BEFORE_FIRST
        if is_new or expired_upto <= max(self.version, self._table.transaction_version(_RESTARTED) or BEFORE_FIRST):
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
        removed = [file for file in _files(self._table) if file["path"] in self._open_files | merged]
        added: list[list[str]] = []
        self._writer.tidy(
            lambda properties: added.extend(
                exchange_files(self._table, [each for each in rows if len(each)], removed, properties, is_new_data=True)
            ),
            {PARTITION_CHANGES.name: self.version, **transactions, **counted(self._table, expired)},
        )
        self._final = {}
        if added or not self._open:
            self._open_files = set(added[0]) if self._open else set()
        else:  # an error came after the commit, which counts all the same
            self._read_open()
        self._maintenance.after_commit()
        self._written, self._written_at = self.version, time.monotonic()

    def _with_older(self) -> tuple[pa.Table, set[str], IncidentCounts]:
        """Return the final rows to write, the files that they replace, and the counts of those that expire.

        Files are merged, and rows expire, with the first write of a day, and when there are many.
        """
        final, now = rows_to_arrow(list(self._final.values()), SCHEMA), self._policy.clock()
        files = {file["path"] for file in _files(self._table)} - self._open_files
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
        """Apply what versions of the change log added, skipping those that were applied already; return how many rows.

        Args:
            added: (version, rows as in ``partition_changes``), the oldest first.

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


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = (
        pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
    )
    return files
