"""The writer of ``partition_changes``: one commit per batch, exactly at version N + 1.

A commit carries, atomically, the changes, the last bus position of every source, and the writer's generation; the
loser of a race stops (see ``writer``). Positions say what was applied (see ``positions``).
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.change_reader import ONLY_SOURCES
from streaming.delta.change_rows import in_commit
from streaming.delta.history import expire_changes
from streaming.delta.layouts import create_or_upgrade
from streaming.delta.maintenance import KEEP_ALL, AppendMaintenance, RetentionPolicy
from streaming.delta.positions import NO_LOG_IDS, StoredPositions
from streaming.delta.writer import APPEND, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa
    from deltalake import DeltaTable

    from streaming.contracts.log_position import LogPosition
    from streaming.delta.positions import LastCommon

NOTHING_APPLIED: Final = -1
_UNREPORTED: Final = "unreported/"
"""Begins the name of the transaction that holds how many refused records of a source its state does not count yet."""


def position_key(source: str) -> str:
    """Name the transaction that holds the position of one source."""
    return f"position/{source}"


def moved(positions: Mapping[str, int]) -> dict[str, int]:
    """Return the positions of sources as the transactions of a commit."""
    return {position_key(source): position for source, position in positions.items()}


def applied_position(table: DeltaTable, source: str) -> int:
    """Read the position of the last applied record of a source from a table's transactions, -1 for none."""
    position = table.transaction_version(position_key(source))
    return NOTHING_APPLIED if position is None else position


class ChangeLog:
    """The only writer of ``partition_changes``. Opening it takes the next generation."""

    def __init__(self, directory: Path, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open or create the table below a directory.

        Args:
            directory: of the tables.
            policy: how long history and old files are retained.

        Raises:
            TableRefused: the table is not ours, or newer than this program.
        """
        self._table = create_or_upgrade(directory, PARTITION_CHANGES)
        self._writer = Writer(self._table)
        self._applied = StoredPositions(self._table)
        self._clock = policy.clock
        expire = partial(expire_changes, directory)
        path = directory / PARTITION_CHANGES.name
        self._maintenance = AppendMaintenance(self._table, path, self._writer, expire, policy)

    @property
    def version(self) -> int:
        """The version that the next commit builds on."""
        return self._table.version()

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._table.table_uri

    @property
    def positions(self) -> dict[str, int]:
        """The positions of the sources that reported since the start."""
        return self._applied.positions

    def position(self, source: str) -> int:
        """Return the position of the last applied observation of a source, -1 for none."""
        return self._applied.position(source)

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source stands."""
        return self._applied.at(source)

    def unreported(self, source: str) -> int:
        """Return how many refused records of a source no state of it counts yet."""
        return int(self._table.transaction_version(_UNREPORTED + source) or 0)

    def go_back(self, sources: Iterable[str], last_common: LastCommon) -> dict[str, LogPosition]:
        """Go back where a log is another one now; return where its last applied record stood, by source."""
        return self._applied.go_back(sources, last_common)

    def commit(
        self,
        rows: pa.Table,
        positions: Mapping[str, int],
        log_ids: Mapping[str, int] = NO_LOG_IDS,
        unreported: Mapping[str, int] = MappingProxyType({}),
        *,
        only_sources: bool = False,
    ) -> int:
        """Append changes and move positions, at exactly the next version.

        Args:
            rows: changes as ``change_rows.changes_to_arrow`` writes them.
            positions: last applied position of every source in the batch.
            log_ids: of the logs that have one.
            unreported: refused records up to these positions that no state of their source counts.
            only_sources: they say how far sources were applied, and nothing else.

        Returns:
            the new version.

        Raises:
            TableRefused: another writer came first; nothing was written.
        """
        # The version is certain before the commit: the writer commits at exactly this version or not at all.
        expected = self.version + 1
        committed_at = self._clock()
        info = {ONLY_SOURCES: "true"} if only_sources else None
        moved = self._applied.transactions(positions, log_ids)
        counts = {_UNREPORTED + source: count for source, count in unreported.items()}
        version = self._writer.write(in_commit(rows, expected, committed_at), APPEND, {**moved, **counts}, info)
        self._applied.move(positions, log_ids)
        self._maintenance.after_commit()
        return version

    def check_ours(self) -> None:
        """Check that no other writer has claimed the table.

        Raises:
            TableRefused: another one has.
        """
        self._writer.check_ours()
