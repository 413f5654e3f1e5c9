"""Text that stands in a file, as it was read at the start and as it is now: passwords change while a program runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable


class StoredText(str):
    """Text as it was read, with the way to read it again."""

    __slots__ = ("read",)
    read: Callable[[], str]

    def __new__(cls, read: Callable[[], str]) -> Self:
        """Read it for the first time.

        Args:
            read: reads it; raises ConfigurationError where it cannot.
        """
        text = super().__new__(cls, read())
        text.read = read
        return text

    def __reduce__(self) -> tuple[type[StoredText], tuple[Callable[[], str]]]:
        """Read it again in another process."""
        return StoredText, (self.read,)


def as_of_now(text: str) -> str:
    """Return a text as its file has it now; what cannot be read now is as it was.

    A file that another program is writing, or a mounted secret that is being exchanged, is missing for a moment.
    """
    if not isinstance(text, StoredText):
        return text
    try:
        return text.read()
    except ConfigurationError:
        return text
