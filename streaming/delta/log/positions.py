"""Applied positions of the logs of the bus: a table's commits store them as transactions.

Positions, not batch ids, say what was applied: a new checkpoint starts again at batch 0, and a callback may run after
its JVM has ended. A position names its log, because a log that was replaced begins again at position 0.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from streaming.contracts.identifiers import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Mapping


class StoresTransactions(Protocol):
    """A table or its writer, with the numbers that commits have stored in it by name."""

    def transaction_version(self, name: str, /) -> int | None:
        """Return a number; None if no commit has stored it."""


NO_LOG_IDS: Final[Mapping[str, int]] = MappingProxyType({})


def moved(positions: Mapping[str, int]) -> dict[str, int]:
    """Return the positions of sources as the transactions of a commit."""
    return {f"position/{source}": position for source, position in positions.items()}


def applied_position(table: StoresTransactions, source: str) -> int:
    """Read the position of the last applied record of a source from a table's transactions, -1 for none."""
    position = table.transaction_version(f"position/{source}")
    return NOWHERE.position if position is None else position
