"""The ``incidents`` table: every incident, written with the version of the change log it is computed up to.

The table is small, so it is overwritten. The row of an open incident holds what the fold needs to continue it, so a
start reads this table and the changes after its version, and nothing older.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from streaming.changes.incident_document import decode_incident
from streaming.changes.incidents import IncidentFold
from streaming.changes.remembered_incidents import IncidentGaps
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES
from streaming.delta.cluster_contexts import read_contexts
from streaming.delta.definitions import rows_to_arrow
from streaming.delta.history import unread_upto
from streaming.delta.incident_rows import SCHEMA, incident_row, rows_of
from streaming.delta.layouts import create_or_upgrade
from streaming.delta.maintenance import KEEP_ALL, Maintenance, RetentionPolicy
from streaming.delta.queries import read_all
from streaming.delta.state_reader import as_of_version
from streaming.delta.table_log import BEFORE_FIRST
from streaming.delta.writer import OVERWRITE, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from streaming.changes.incident import Incident

VERSIONS_WITHOUT_NEWS: Final = 500
SECONDS_WITHOUT_NEWS: Final = 3600.0
"""After so many versions or so long without an incident the applied version is committed anyway.

A start reads the rest again, and the expiry of history sees that the query still runs.
"""
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
        self._maintenance = Maintenance(self._table, directory / INCIDENTS.name, policy)
        self._rows: dict[str, dict[str, Any]] = {row["incident_id"]: row for row in read_all(self._table).to_pylist()}
        self.version = self._written = as_of_version(self._table)
        self._written_at = time.monotonic()
        self._end_where_changes_expired(unread_upto(directory))
        contexts = {} if self.version == BEFORE_FIRST else read_contexts(directory)
        self._incidents = IncidentFold(gaps, self._carried(), contexts)

    def _carried(self) -> Iterator[Incident]:
        return (decode_incident(row["carried"]) for row in self._rows.values() if row["carried"])

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
            was_open = self._rows[incident.incident_id]["closed_at"] is None
            self._rows[incident.incident_id] = row | {"summary": row["summary"] + (_END_UNKNOWN if was_open else "")}
        self._write({_RESTARTED: expired_upto})
        _log.warning(
            "the query incidents did not run for longer than history is kept: of the changes of versions %d to %d only "
            "the newest of each partition and broker are left, so incidents of that time are missing or incomplete",
            self.version + 1,
            expired_upto,
        )

    def _write(self, transactions: Mapping[str, int]) -> None:
        rows = rows_to_arrow(list(self._rows.values()), SCHEMA)
        self._writer.write(rows, OVERWRITE, {PARTITION_CHANGES.name: self.version, **transactions})
        self._maintenance.after_commit()
        self._written, self._written_at = self.version, time.monotonic()

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
        changed_ids: set[str] = set()
        count = 0
        for version, changes in added:
            if version <= self.version:
                continue
            for incident in self._incidents.fold(rows_of(changes, version)):
                may_go_on = self._incidents.remembered(incident)
                self._rows[incident.incident_id] = incident_row(
                    incident, version, self._incidents.times(incident.cluster_id), may_go_on=may_go_on
                )
                changed_ids.add(incident.incident_id)
            count += changes.num_rows
            self.version = version
        is_late = time.monotonic() - self._written_at >= SECONDS_WITHOUT_NEWS and self.version > self._written
        if changed_ids or is_late or self.version - self._written >= VERSIONS_WITHOUT_NEWS:
            self._write({})
        return count
