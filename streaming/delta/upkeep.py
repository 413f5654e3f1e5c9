"""Compaction and vacuum, by the one writer of a table: so that reads, commits and the disk stay flat.

Readers ignore such commits (``dataChange`` is false). What was appended stays readable version by version for as long
as the log does; of a table that is overwritten only the last hour does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deltalake import CommitProperties

from streaming.delta.writing import writing

if TYPE_CHECKING:
    from deltalake import DeltaTable

KEEP_HOURS: Final = 1
KEEP_HISTORY_HOURS: Final = 30 * 24  # as long as the log of an append-only table
APPENDS_BETWEEN_COMPACTIONS: Final = 500
OVERWRITES_BETWEEN_VACUUMS: Final = 100


class Upkeep:
    """Counts the commits of one table, and tidies it up when it is due."""

    def __init__(self, table: DeltaTable, *, append_only: bool) -> None:
        self._table = table
        self._append_only = append_only
        self._commits = 0

    def after_commit(self) -> bool:
        """Count one commit; give whether the table was tidied up, which moves its version."""
        self._commits += 1
        due = APPENDS_BETWEEN_COMPACTIONS if self._append_only else OVERWRITES_BETWEEN_VACUUMS
        if self._commits < due:
            return False
        self._commits = 0
        hours = KEEP_HISTORY_HOURS if self._append_only else KEEP_HOURS
        with writing(self._table.table_uri):
            if self._append_only:
                self._table.optimize.compact(commit_properties=CommitProperties(max_commit_retries=0))
            self._table.vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=False)
        return True
