"""The writer of ``partition_changes``: one commit a batch, exactly at version N + 1.

A commit carries, atomically, the changes, the last bus position of every source, and the writer's generation; the
loser of a race stops (see ``writer``). Positions, not batch ids, tell what was applied: a new
checkpoint starts again at batch 0, and a callback may outlive its JVM.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.definitions import create_or_check
from streaming.delta.derived import oldest_needed
from streaming.delta.upkeep import EVERYTHING, AppendUpkeep, Keep
from streaming.delta.writer import APPEND, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa
    from deltalake import DeltaTable

NOTHING_APPLIED: Final = -1


def position_key(source: str) -> str:
    """Name the transaction that holds the position of one source."""
    return f"position/{source}"


def moved(positions: Mapping[str, int]) -> dict[str, int]:
    """Spell the positions of sources as what a commit remembers."""
    return {position_key(source): position for source, position in positions.items()}


def applied_position(table: DeltaTable, source: str) -> int:
    """Read the position of the last applied record of a source from a table's transactions, -1 for none."""
    known = table.transaction_version(position_key(source))
    return NOTHING_APPLIED if known is None else known


class Truth:
    """The one writer of ``partition_changes``. Opening it takes the next generation."""

    def __init__(self, directory: Path, keep: Keep = EVERYTHING) -> None:
        """Open or create the table below a directory, and keep of its past what is wanted.

        Raises:
            TableRefused: the table is not ours, or newer than this program.
        """
        self._table = create_or_check(directory, PARTITION_CHANGES)
        self._writer = Writer(self._table)
        self._positions: dict[str, int] = {}
        needed = partial(oldest_needed, directory)
        self._upkeep = AppendUpkeep(self._table, directory / PARTITION_CHANGES.name, self._writer, keep, needed)

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
        """The positions of the sources that were heard since the start."""
        return dict(self._positions)

    def position(self, source: str) -> int:
        """Give the position of the last applied observation of a source, -1 for none."""
        if source not in self._positions:
            self._positions[source] = applied_position(self._table, source)
        return self._positions[source]

    def go_on_after(self, positions: Mapping[str, int]) -> None:
        """Take over positions that rows of sources tell: the cluster form writes no transactions of them."""
        for source, position in positions.items():
            self._positions[source] = max(position, self.position(source))

    def commit(self, rows: pa.Table, positions: Mapping[str, int]) -> int:
        """Append changes and move positions, at exactly the next version.

        Args:
            rows: changes as ``rows.changes_to_arrow`` writes them.
            positions: last applied position of every source in the batch.

        Returns:
            the new version.

        Raises:
            TableRefused: another writer came first; nothing was written.
        """
        version = self._writer.write(rows, APPEND, moved(positions))
        self._positions.update(positions)
        self._upkeep.after_commit()
        return version

    def check_ours(self) -> None:
        """Look whether somebody else writes the table since.

        Raises:
            TableRefused: somebody does.
        """
        self._writer.check_ours()
