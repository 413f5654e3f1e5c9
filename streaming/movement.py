"""Signs that work moves: its parts note what they have done, and health checks ask when that was.

However long a piece of work is, it moves while rows are read or folded and commits are made. Work that hangs does not,
whatever its thread or process says of itself. Depends on nothing of isrwatch.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

STILL_SECONDS: Final = 60.0
"""Work that has not moved for so long hangs."""
STARTING_SECONDS: Final = 300.0
"""The same before it has moved for the first time."""
ITEMS: Final = 256
_OF_THREAD: Final = threading.local()


class Motion:
    """Notes of one piece of work, made by any thread: whether it has moved since it began, and when."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Note that the work begins, perhaps again."""
        self._at, self.has_moved = self._clock(), False

    def note(self) -> None:
        """Note that it has moved."""
        self._at, self.has_moved = self._clock(), True

    def still_seconds(self, since: float = float("-inf")) -> float:
        """Return for how long it has not moved, at most since a time of the clock."""
        return max(0.0, self._clock() - max(self._at, since))

    def hangs(self, since: float = float("-inf"), limit: float = STILL_SECONDS) -> bool:
        """Return whether it has not moved for longer than it may, at most since a time of the clock."""
        return self.still_seconds(since) > (limit if self.has_moved else max(limit, STARTING_SECONDS))

    @contextmanager
    def of_this_thread(self) -> Iterator[None]:
        """Let :func:`note` of this thread be of this work."""
        before = getattr(_OF_THREAD, "movement", None)
        _OF_THREAD.movement = self
        try:
            yield
        finally:
            _OF_THREAD.movement = before


def note() -> None:
    """Note that the work of this thread has moved, if it is observed."""
    movement: Motion | None = getattr(_OF_THREAD, "movement", None)
    if movement is not None:
        movement.note()


def noted(items: Iterable[T]) -> Iterator[T]:
    """Yield items, and note now and then that the work of this thread has moved."""
    for number, item in enumerate(items):
        if not number % ITEMS:
            note()
        yield item
