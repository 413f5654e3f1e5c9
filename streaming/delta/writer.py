"""One writer a table: each commit stands exactly on the version that its writer knows, and carries its generation.

It is never rebased: whoever finds another version than the one it built on has lost a race and must stop, because what
it was about to write was derived from something that is not true any more. Knows Delta's commits, no row.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal

from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from streaming.delta.writing import writing
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from deltalake import DeltaTable

GENERATION: Final = "generation"
Mode = Literal["append", "overwrite"]
OVERWRITE: Final = "overwrite"
APPEND: Final = "append"


class Writer:
    """The one writer of a table, until somebody else writes it."""

    def __init__(self, table: DeltaTable) -> None:
        """Take the next generation; the table says so from the first commit on."""
        self._table = table
        self._generation = next_generation(table)

    def write(self, rows: pa.Table, mode: Mode, transactions: Mapping[str, int]) -> int:
        """Commit rows at exactly the next version; give that version.

        Args:
            rows: in the table's schema.
            mode: ``OVERWRITE`` or ``APPEND``.
            transactions: what the table is to remember in the same commit.

        Raises:
            TableRefused: another writer came first; nothing was written.
            IsrwatchError: the disk is full, or refuses.
        """
        expected: int = self._table.version() + 1
        try:
            with writing(self._table.table_uri):
                write_deltalake(self._table, rows, mode=mode, commit_properties=self._properties(transactions))
        except CommitFailedError as error:
            raise self._refused(f"version {expected} exists already") from error
        if self._table.version() != expected:
            raise AssertionError(f"committed version {self._table.version()} on top of {expected - 1}")
        return expected

    def tidy(self, work: Callable[[CommitProperties], object], transactions: Mapping[str, int] | None = None) -> None:
        """Commit upkeep on exactly the version that this writer knows.

        Args:
            work: makes the commit, if there is anything to do, with these properties.
            transactions: what the table is to remember in the same commit.

        Raises:
            TableRefused: another writer came first; nothing was done.
        """
        begin = self._table.version()
        try:
            work(self._properties(transactions or {}))
        except CommitFailedError as error:
            raise self._refused(f"version {begin + 1} exists already") from error

    def _properties(self, transactions: Mapping[str, int]) -> CommitProperties:
        told = [Transaction(name, value) for name, value in {**transactions, GENERATION: self._generation}.items()]
        return CommitProperties(max_commit_retries=0, app_transactions=told)

    def check_ours(self) -> None:
        """Look whether the newest commit is still of this writer or of an earlier one, before it is opened again.

        Raises:
            TableRefused: somebody else has begun to write since.
        """
        self._table.update_incremental()
        if (self._table.transaction_version(GENERATION) or 0) > self._generation:
            raise self._refused("it began later")

    def _refused(self, why: str) -> TableRefused:
        return lost_race(self._table.table_uri, why)


def next_generation(table: DeltaTable) -> int:
    """Give the generation of a writer that opens a table now.

    Generations are microseconds since 1970, so two writers that open a table at once have two of them, and a writer
    that counts on from its own does not reach the next one's.
    """
    return max(int(table.transaction_version(GENERATION) or 0) + 1, time.time_ns() // 1000)


def lost_race(uri: str, why: str) -> TableRefused:
    """Make the refusal of a writer that is not the only one."""
    return TableRefused(
        f"another job writes {uri} ({why}); stop one of the two, "
        "then start this one again: it goes on where the other stopped"
    )
