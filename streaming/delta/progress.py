"""The rows of one channel in ``source_progress``. Each channel is a partition of that table with a writer of its own.

A write replaces the channel's rows and nothing else, so the queries of several jobs can write concurrently: delta-rs
rebases and retries their commits. Of two writers of one channel, one is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from streaming.contracts.state import SourceLag, SourceState
from streaming.contracts.tables import PARTITION_CHANGES, SOURCE_PROGRESS
from streaming.delta.log.definitions import arrow_schema, create_or_upgrade, rows_to_arrow
from streaming.delta.log.maintenance import KEEP_ALL, Maintenance, RetentionPolicy
from streaming.delta.log.queries import select
from streaming.delta.log.table_log import identity_of
from streaming.delta.state import as_of_version, states_of
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streaming.contracts.observations import Channel

TURNS: Final = 20
_SCHEMA: Final = arrow_schema(SOURCE_PROGRESS)


class ProgressTable:
    """The rows of one channel."""

    def __init__(self, directory: Path, channel: Channel, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open the table.

        Raises:
            TableRefused: it is not ours, or newer than this program.
        """
        self._directory, self._channel, self._policy = directory, channel, policy
        self._open()

    def _open(self) -> None:
        path = self._directory / SOURCE_PROGRESS.name
        self._table = create_or_upgrade(self._directory, SOURCE_PROGRESS)
        self._maintenance = Maintenance(self._table, path, self._policy)

    @property
    def as_of_version(self) -> int:
        """The version of ``partition_changes`` up to which the replication channel is computed, -1 for none."""
        return as_of_version(self._table)

    def sources(self) -> list[SourceState]:
        """Read how far the channel's sources were applied."""
        return list(states_of(SourceState, select(self._table, SOURCE_PROGRESS, f"channel = '{self._channel}'")))

    def replace(self, rows: Sequence[tuple[SourceState, SourceLag]], as_of_version: int | None) -> None:
        """Replace the channel's rows.

        Args:
            rows: how far each source was applied, and how far it is behind.
            as_of_version: the version of ``partition_changes`` they are computed up to; None if from samples.

        Raises:
            TableRefused: another job has written this channel meanwhile; the next call sees what it wrote.
        """
        # The writers of other channels expire the log: after a long suspension it cannot be followed any more.
        if identity_of(self._directory / SOURCE_PROGRESS.name, self._table.version()) is None:
            self._open()
        beside = {"channel": self._channel, "as_of_version": as_of_version}
        data = rows_to_arrow([{**state._asdict(), **lag._asdict(), **beside} for state, lag in rows], _SCHEMA)
        transactions = [] if as_of_version is None else [Transaction(PARTITION_CHANGES.name, as_of_version)]
        try:
            write_deltalake(
                self._table,
                data,
                mode="overwrite",
                predicate=f"channel = '{self._channel}'",
                commit_properties=CommitProperties(max_commit_retries=TURNS, app_transactions=transactions),
            )
        except CommitFailedError as error:
            self._table.update_incremental()
            raise TableRefused(
                f"another job writes the channel {self._channel} of {self._table.table_uri}; stop one of the two"
            ) from error
        self._maintenance.after_commit()
