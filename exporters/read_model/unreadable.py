"""Tables that a command could not read: it shows what the others hold, and then names these in one sentence."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator


class UnreadableTables:
    """Collects why tables could not be read."""

    def __init__(self) -> None:
        """Start with none."""
        self.sentences: list[str] = []

    def add(self, sentence: str) -> None:
        """Take over a sentence; the same one counts once."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Leave the block when a table cannot be read, and continue after it."""
        try:
            yield
        except TableUnreadable as error:
            self.add(str(error))

    def raise_if_any(self) -> None:
        """End the command, after everything that can be shown was shown.

        Raises:
            TableUnreadable: a table could not be read.
        """
        if self.sentences:
            raise TableUnreadable("; ".join(self.sentences))


class StrictUnreadableTables(UnreadableTables):
    """Tolerates no table that cannot be read: the error is raised."""

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Catch nothing."""
        yield


INTOLERANT: Final = StrictUnreadableTables()
