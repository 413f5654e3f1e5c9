"""What is planned in a simulation, by time. Knows nothing of clusters."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Agenda:
    """Acts with their times, in milliseconds; among equals the one planned first comes first."""

    def __init__(self) -> None:
        self._acts: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, at: int, act: Callable[[], None]) -> None:
        """Plan one act."""
        self._number += 1
        heapq.heappush(self._acts, (at, self._number, act))

    def every(self, period: int, first: int, act: Callable[[], None]) -> None:
        """Plan an act again and again."""

        def once(at: int) -> None:
            act()
            self.at(at + period, lambda: once(at + period))

        self.at(first, lambda: once(first))

    def due(self, until: int) -> tuple[int, Callable[[], None]] | None:
        """Take the next act, if it is planned for ``until`` or earlier: (its time, the act)."""
        if not self._acts or self._acts[0][0] > until:
            return None
        at, _, act = heapq.heappop(self._acts)
        return at, act
