"""The ``incidents`` table: what is known of every incident, written with the version of the truth that says so.

The table is small, so it is overwritten. An open incident carries what the fold needs to go on, so a start reads this
table and the changes after its version, and nothing older.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.changes.incident_document import read
from streaming.changes.incidents import Gaps, Incidents
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES
from streaming.delta.definitions import create_or_check
from streaming.delta.incident_rows import SCHEMA, incident_row, rows_of
from streaming.delta.rows import read_all
from streaming.delta.tail import BEFORE_FIRST, rows_between
from streaming.delta.upkeep import Upkeep
from streaming.delta.writer import OVERWRITE, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

VERSIONS_WITHOUT_NEWS: Final = 500
"""So many versions may tell of no incident before the table says anyway how far it is: a start reads them again."""


class IncidentsTable:
    """The one writer of ``incidents``."""

    def __init__(self, directory: Path, gaps: Gaps) -> None:
        """Open or create the table below a directory, and go on where it stands.

        Raises:
            TableRefused: the table is not ours, or newer than this program.
        """
        self._truth = directory / PARTITION_CHANGES.name
        self._table = create_or_check(directory, INCIDENTS)
        self._writer, self._upkeep = Writer(self._table), Upkeep(self._table, directory / INCIDENTS.name)
        self._rows: dict[str, dict[str, Any]] = {row["incident_id"]: row for row in read_all(self._table).to_pylist()}
        self._incidents = Incidents(gaps, (read(row["carried"]) for row in self._rows.values() if row["carried"]))
        known = self._table.transaction_version(PARTITION_CHANGES.name)
        self.version: int = BEFORE_FIRST if known is None else known
        self._written = self.version

    def check_ours(self) -> None:
        """Look whether somebody else writes the table since.

        Raises:
            TableRefused: somebody does.
        """
        self._writer.check_ours()

    def catch_up(self, version: int) -> None:
        """Apply what the truth has up to a version and the caller does not bring.

        Raises:
            TailGap: some of it is gone.
        """
        if self.version < version:
            self.apply([(version, rows_between(self._truth, self.version, version))])

    def apply(self, added: Iterable[tuple[int, pa.Table]]) -> int:
        """Apply what versions of the truth added, those that were applied already left out; give how many rows.

        Args:
            added: (version, rows as in ``partition_changes``), the oldest first.

        Raises:
            TableRefused: another job writes the table; nothing was written, and this object is to be opened anew.
        """
        told: set[str] = set()
        count = 0
        for version, changes in added:
            if version <= self.version:
                continue
            for incident in self._incidents.fold(rows_of(changes, version)):
                may_go_on = self._incidents.remembered(incident)
                self._rows[incident.incident_id] = incident_row(incident, version, may_go_on=may_go_on)
                told.add(incident.incident_id)
            count += changes.num_rows
            self.version = version
        if told or self.version - self._written >= VERSIONS_WITHOUT_NEWS:
            rows = pa.Table.from_pylist(list(self._rows.values()), schema=SCHEMA)
            self._writer.write(rows, OVERWRITE, {PARTITION_CHANGES.name: self.version})
            self._upkeep.after_commit()
            self._written = self.version
        return count
