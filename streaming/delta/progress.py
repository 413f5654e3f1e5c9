"""The rows of one channel in ``source_progress``. Each channel is a partition of that table with its own writer.

Only this table says how far samples were applied, because their tables are many and are written before this one. The
commits of the change log say how far replication was applied.

A write replaces only the channel's rows, so the queries of several jobs can write concurrently: the second one tries
again on top of the first. Of two writers of one channel, one is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.state import SourceLag, SourceState
from streaming.contracts.tables import PARTITION_CHANGES, SOURCE_PROGRESS
from streaming.delta.log.commit import NO_LOG_IDS
from streaming.delta.log.definitions import arrow_schema, rows_to_arrow
from streaming.delta.log.maintenance import KEEP_ALL, Maintenance, RetentionPolicy
from streaming.delta.log.queries import select
from streaming.delta.log.writer import Writer
from streaming.delta.state import as_of_version, states_of
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.contracts.observations import Channel
    from streaming.delta.store.place import Place

_SCHEMA: Final = arrow_schema(SOURCE_PROGRESS)


class ProgressTable:
    """The rows of one channel."""

    def __init__(
        self,
        directory: Place,
        channel: Channel,
        policy: RetentionPolicy = KEEP_ALL,
        shared: ProgressTable | None = None,
    ) -> None:
        """Open the table, for the rows of one channel.

        ``shared`` writes another channel in the same thread: it shares its writer, so none reads what the other wrote.

        Raises:
            TableRefused: it is not ours, or newer than this program.
        """
        self._channel = channel
        self.writer: Writer = Writer.opened(directory, SOURCE_PROGRESS) if shared is None else shared.writer
        self.maintenance: Maintenance = Maintenance(self.writer, policy) if shared is None else shared.maintenance

    @property
    def as_of_version(self) -> int:
        """The version of ``partition_changes`` up to which the replication channel is computed, -1 for none."""
        return as_of_version(self.writer)

    def sources(self) -> list[SourceState]:
        """Read how far the channel's sources were applied."""
        return list(states_of(SourceState, select(self.writer.table, SOURCE_PROGRESS, f"channel = '{self._channel}'")))

    def offset(self, name: str) -> int:
        """Return the offset of the bus that was stored under a name, -1 for none."""
        offset = self.writer.transaction_version(name)
        return -1 if offset is None else offset

    def replace(
        self,
        rows: Sequence[tuple[SourceState, SourceLag]],
        as_of_version: int | None,
        offsets: Mapping[str, int] = NO_LOG_IDS,
    ) -> None:
        """Replace the channel's rows, computed up to a version of ``partition_changes`` (None for samples).

        ``offsets`` of the bus, by name, are those up to which the sources were applied.

        Raises:
            TableRefused: another job has written this channel meanwhile; the next call sees what it wrote.
        """
        shared = {"channel": self._channel, "as_of_version": as_of_version}
        data = rows_to_arrow([{**state._asdict(), **lag._asdict(), **shared} for state, lag in rows], _SCHEMA)
        transactions = {} if as_of_version is None else {PARTITION_CHANGES.name: as_of_version}
        ours = self._own_files()
        try:
            self.writer.in_turn(
                lambda: self.writer.exchange([data], ours, {**transactions, **offsets}, is_new_data=True),
                lambda: self._own_files() == ours,
            )
        except TableRefused:
            raise TableRefused(
                f"another job writes the channel {self._channel} of {self.writer.path}; stop one of the two"
            ) from None
        self.maintenance.after_commit()

    def _own_files(self) -> set[str]:
        files = self.writer.files().values()
        return {file.path for file in files if file.partition["channel"] == self._channel}
