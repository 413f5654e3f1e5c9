"""Applied positions of the logs of the bus: a table's commits store them as transactions.

Positions, not batch ids, say what was applied: a new checkpoint starts again at batch 0, and a callback may run after
its JVM has ended. A position names its log, because a log that was replaced begins again at position 0.
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
    """A table or its writer, with the numbers that commits have stored in it by name."""

    def transaction_version(self, name: str, /) -> int | None:
        """Return a number; None if no commit has stored it."""


LastCommon = Callable[[str, LogPosition], LogPosition]
"""Returns the last applied record of a source that its log on the bus still contains."""

NO_LOG_IDS: Final[Mapping[str, int]] = MappingProxyType({})
_NO_LOG_ID: Final = 0  # replaces a stored log id once nothing of that log is applied


def moved(positions: Mapping[str, int]) -> dict[str, int]:
    """Return the positions of sources as the transactions of a commit."""
    return {f"position/{source}": position for source, position in positions.items()}


def applied_position(table: StoresTransactions, source: str) -> int:
    """Read the position of the last applied record of a source from a table's transactions, -1 for none."""
    position = table.transaction_version(f"position/{source}")
    return NOWHERE.position if position is None else position


def changed_logs(applied: Mapping[str, LogPosition], last_common: LastCommon) -> dict[str, LogPosition]:
    """Return the last common record of each log that was replaced since a record was applied."""
    common = {source: last_common(source, at) for source, at in applied.items()}
    return {source: at for source, at in common.items() if at != applied[source]}


class StoredPositions:
    """Applied position of each log in one table, as stored, or as its only writer has committed since."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._positions: dict[str, LogPosition] = {}

    def position(self, source: str) -> int:
        """Return the position of the last applied record of a source, -1 for none."""
        return self.at(source).position

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source is."""
        if source not in self._positions:
            log_id = self._writer.transaction_version(f"log/{source}")
            self._positions[source] = LogPosition(applied_position(self._writer, source), log_id or None)
        return self._positions[source]

    def move(self, positions: Mapping[str, int], log_ids: Mapping[str, int] = NO_LOG_IDS) -> None:
        """Set the position of sources; ``log_ids``: of the logs that have one."""
        for source, position in positions.items():
            self._positions[source] = LogPosition(position, log_ids.get(source))

    def transactions(self, positions: Mapping[str, int], log_ids: Mapping[str, int] = NO_LOG_IDS) -> dict[str, int]:
        """Return positions as the transactions of a commit that moves them."""
        stored = moved(positions)
        for source in positions:
            key, log_id = f"log/{source}", log_ids.get(source, _NO_LOG_ID)
            if log_id or self._writer.transaction_version(key):
                stored[key] = log_id
        return stored

    def go_back(self, sources: Iterable[str], last_common: LastCommon) -> dict[str, LogPosition]:
        """Go back to the last common record of each log that was replaced; return the earlier positions."""
        before = {source: self.at(source) for source in sources}
        changed = changed_logs(before, last_common)
        self._positions |= changed
        return {source: before[source] for source in changed}
