"""Applied positions of the logs of the bus: a table's commits carry them as transactions.

What was applied is recorded as positions, not as batch ids: a new checkpoint starts again at batch 0, and a callback
may run after its JVM has ended. A position names its log, because a log that was replaced begins again at position 0.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from streaming.contracts.identifiers import NOWHERE, LogPosition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.delta.log.writer import Writer


class StoresTransactions(Protocol):
    """A table, or the writer of one: numbers by name that its commits have stored in it."""

    def transaction_version(self, name: str, /) -> int | None:
        """Return a number; None if no commit has stored it."""


LastCommon = Callable[[str, LogPosition], LogPosition]
"""Returns the last record that the log of a source on the bus has in common with what was applied of it."""

NO_LOG_IDS: Final[Mapping[str, int]] = MappingProxyType({})
_NO_LOG_ID: Final = 0  # where nothing of a log is applied any more


def changed_logs(applied: Mapping[str, LogPosition], last_common: LastCommon) -> dict[str, LogPosition]:
    """Return the last common record of each log that is not the one of which a record was applied last."""
    common = {source: last_common(source, at) for source, at in applied.items()}
    return {source: at for source, at in common.items() if at != applied[source]}


class StoredPositions:
    """Applied position of each log in one table, as stored or, since, as committed by its one writer."""

    def __init__(self, writer: Writer) -> None:
        """Read nothing yet from the table whose commits carry the positions."""
        self._writer = writer
        self._positions: dict[str, LogPosition] = {}

    @property
    def positions(self) -> dict[str, int]:
        """The positions of the sources that were asked for or moved since the start."""
        return {source: at.position for source, at in self._positions.items()}

    def position(self, source: str) -> int:
        """Return the position of the last applied record of a source, -1 for none."""
        return self.at(source).position

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source stands."""
        if source not in self._positions:
            self._positions[source] = self.stored(source)
        return self._positions[source]

    def stored(self, source: str) -> LogPosition:
        """Return where the last applied record of a source stands, as the table says now."""
        position = self._writer.transaction_version(f"position/{source}")
        log_id = self._writer.transaction_version(f"log/{source}")
        return NOWHERE if position is None else LogPosition(position, log_id or None)

    def move(self, positions: Mapping[str, int], log_ids: Mapping[str, int] = NO_LOG_IDS) -> None:
        """Set the position of sources; ``log_ids``: of the logs that have one."""
        for source, position in positions.items():
            self._positions[source] = LogPosition(position, log_ids.get(source))

    def transactions(self, positions: Mapping[str, int], log_ids: Mapping[str, int] = NO_LOG_IDS) -> dict[str, int]:
        """Return positions as the transactions of a commit that moves them."""
        moved = {f"position/{source}": position for source, position in positions.items()}
        for source in positions:
            key, log_id = f"log/{source}", log_ids.get(source, _NO_LOG_ID)
            if log_id or self._writer.transaction_version(key):
                moved[key] = log_id
        return moved

    def go_back(self, sources: Iterable[str], last_common: LastCommon) -> dict[str, LogPosition]:
        """Go back to the last common record of each log that is another one now.

        Returns:
            where the last applied record stood, of each source that went back.
        """
        before = {source: self.at(source) for source in sources}
        changed = changed_logs(before, last_common)
        self._positions |= changed
        return {source: before[source] for source in changed}
