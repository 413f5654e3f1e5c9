"""Lines for people, broken between words where a terminal is narrower; in a pipe, which has no width, never broken."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

_INDENT: Final = 4
_WORD: Final = re.compile(r"\s*\S+")


def print_wrapped(console: Console, line: Text, *, in_pipe: int | None = None) -> None:
    """Print a line; on a terminal as several if it is longer, all but the first indented.

    Args:
        console: that it is printed to.
        line: with its colours; it may have line breaks of its own.
        in_pipe: characters in a line where there is no terminal; None for no limit.
    """
    width = console.width if console.is_terminal else in_pipe
    for part in line.split("\n") if width is None else wrapped(line, width):
        console.print(part, soft_wrap=True)


def wrapped(line: Text, width: int) -> Iterator[Text]:
    """Break a text between words only: what is longer than a line, such as an id, stays in one piece."""
    for part in line.split("\n"):
        starts, room, taken = list[int](), width, 0
        for word in _WORD.finditer(part.plain):
            if taken and taken + cell_len(word[0]) > room:
                starts.append(word.start())
                room, taken = width - _INDENT, cell_len(word[0].lstrip())
            else:
                taken += cell_len(word[0])
        first, *others = part.divide(starts)
        yield first
        for each in others:
            blanks = len(each) - len(each.plain.lstrip())
            yield Text(" " * _INDENT) + each[blanks:]
