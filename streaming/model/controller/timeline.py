"""State that can go back: what an operation changed is undone if the quorum will never have it.

Kafka's ``SnapshotRegistry`` with its ``TimelineHashMap``; here a journal of former values, forgotten once committed.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Final = object()


class _Former(NamedTuple):
    """What a mapping had under a key before a change."""

    mapping: Timeline[Any, Any]
    key: Any
    value: Any


class Journal:
    """Former values since the last committed operation, oldest first, with a mark after each operation.

    ``is_kept`` is set where an operation may be undone: among several controllers, or while batches linger.
    """

    def __init__(self) -> None:
        self.is_kept = False
        self.former: list[_Former] = []
        self._marks: list[tuple[int, int]] = []

    def mark(self, offset: int) -> None:
        """An operation ends; the metadata log will then reach up to ``offset``."""
        if self.is_kept:
            self._marks.append((offset, len(self.former)))

    def forget(self, offset: int) -> None:
        """The log is committed up to ``offset``: the operations below cannot be undone any more."""
        below = 0
        while below < len(self._marks) and self._marks[below][0] <= offset:
            below += 1
        if below:
            cut = self._marks[below - 1][1]
            del self.former[:cut]
            self._marks = [(end, length - cut) for end, length in self._marks[below:]]

    def since(self, offset: int) -> list[_Former]:
        """Take out what was changed by operations beyond ``offset``, the newest change first."""
        kept = [mark for mark in self._marks if mark[0] <= offset]
        length = kept[-1][1] if kept else 0
        undone = self.former[length:][::-1]
        del self.former[length:]
        self._marks = kept
        return undone


class Timeline(dict[K, V]):
    """A dict whose changes go into a journal. Change it with ``[]`` and ``del`` only; nothing else is journalled."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def __setitem__(self, key: K, value: V) -> None:
        if self._journal.is_kept:
            self._journal.former.append(_Former(self, key, self.get(key, _ABSENT)))
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        if self._journal.is_kept:
            self._journal.former.append(_Former(self, key, self[key]))
        super().__delitem__(key)

    def restore(self, key: K, value: Any) -> None:  # noqa: ANN401 - a former value, or that there was none
        """Put a former value back; nothing is journalled."""
        if value is _ABSENT:
            super().pop(key)
        else:
            super().__setitem__(key, value)
