"""The rows of one channel in ``source_progress``. Each channel is a partition of that table with a writer of its own.

A write replaces the channel's rows and nothing else, so the queries of several jobs write beside each other; they
only take turns, which delta-rs does by itself. Two writers of one channel do not mix: one of them is told to stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from streaming.contracts.tables import PARTITION_CHANGES, SOURCE_PROGRESS
from streaming.delta.definitions import arrow_schema, create_or_check
from streaming.delta.rows import read_all
from streaming.delta.upkeep import Upkeep
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from streaming.contracts.observations import Channel

TURNS: Final = 20
_SCHEMA: Final = arrow_schema(SOURCE_PROGRESS)


class ProgressTable:
    """The rows of one channel."""

    def __init__(self, directory: Path, channel: Channel) -> None:
        """Open the table.

        Raises:
            TableRefused: it is not ours, or newer than this program.
        """
        self._table = create_or_check(directory, SOURCE_PROGRESS)
        self._channel = channel
        self._upkeep = Upkeep(self._table, directory / SOURCE_PROGRESS.name)

    @property
    def as_of_version(self) -> int:
        """The version of ``partition_changes`` that the rows of the replication channel are true of, -1 for none."""
        told = self._table.transaction_version(PARTITION_CHANGES.name)
        return -1 if told is None else told

    def rows(self) -> list[dict[str, Any]]:
        """Read the channel's rows; times are microseconds."""
        return [row for row in read_all(self._table).to_pylist() if row["channel"] == self._channel]

    def replace(self, rows: Sequence[Mapping[str, Any]], as_of_version: int | None) -> None:
        """Write the channel's rows anew.

        Args:
            rows: columns by name; what is absent is null.
            as_of_version: what they are true of; None where they do not follow from ``partition_changes``.

        Raises:
            TableRefused: another job has written this channel meanwhile; the next call sees what it wrote.
        """
        data = pa.Table.from_pylist([{**row, "channel": self._channel} for row in rows], schema=_SCHEMA)
        told = [] if as_of_version is None else [Transaction(PARTITION_CHANGES.name, as_of_version)]
        try:
            write_deltalake(
                self._table,
                data,
                mode="overwrite",
                predicate=f"channel = '{self._channel}'",
                commit_properties=CommitProperties(max_commit_retries=TURNS, app_transactions=told),
            )
        except CommitFailedError as error:
            self._table.update_incremental()
            raise TableRefused(
                f"another job writes the channel {self._channel} of {self._table.table_uri}; stop one of the two"
            ) from error
        self._upkeep.after_commit()
