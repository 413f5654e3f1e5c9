"""Operations that wait for partitions to move (``DelayedOperationPurgatory``).

A change of a partition is only noted (:meth:`Purgatory.touch`, a look at an empty dict while nothing waits); the
broker completes what can be completed at the end of every input, so that no operation runs in the middle of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from streaming.model.messages.timers import OperationExpired

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.messages.network import Outbox


class DelayedOperation(Protocol):
    """Something that waits."""

    def try_complete(self, now: int) -> bool:
        """Finish if it can be finished, and tell whether it was."""

    def expire(self, now: int) -> None:
        """Finish, for its time is over."""


class _WatchedOperation(NamedTuple):
    operation: DelayedOperation
    keys: tuple[TopicPartition, ...]


class Purgatory:
    """Waiting operations by the partitions they watch."""

    def __init__(self, outbox: Outbox) -> None:
        self.touched: dict[TopicPartition, None] = {}
        self._outbox = outbox
        self._watching: dict[TopicPartition, dict[int, None]] = {}
        self._operations: dict[int, _WatchedOperation] = {}
        self._last_number = 0

    def complete_or_watch(
        self, now: int, operation: DelayedOperation, keys: Iterable[TopicPartition], timeout_ms: int
    ) -> None:
        """Finish it now if possible; else try again whenever one of ``keys`` moves, for ``timeout_ms``."""
        if operation.try_complete(now):
            return
        self._last_number += 1
        watched = self._operations[self._last_number] = _WatchedOperation(operation, tuple(keys))
        for key in watched.keys:
            self._watching.setdefault(key, {})[self._last_number] = None
        self._outbox.after(timeout_ms, OperationExpired(self._last_number))

    def touch(self, key: TopicPartition) -> None:
        """High watermark, ISR, leadership or log end of a partition moved."""
        if self._watching and key in self._watching:
            self.touched[key] = None

    def complete(self, now: int) -> None:
        """Try what waits for touched partitions, in the order it came, until nothing moves any more."""
        while self.touched:
            keys, self.touched = self.touched, {}
            for number in [number for key in keys for number in self._watching.get(key, ())]:
                watched = self._operations.get(number)
                if watched is not None and watched.operation.try_complete(now):
                    self._forget(number)

    def expired(self, now: int, timer: OperationExpired) -> None:
        """The time of an operation is over, unless it was finished before."""
        if timer.number in self._operations:
            operation = self._operations[timer.number].operation
            self._forget(timer.number)
            operation.expire(now)

    def _forget(self, number: int) -> None:
        for key in self._operations.pop(number).keys:
            watching = self._watching[key]
            del watching[number]
            if not watching:
                del self._watching[key]
