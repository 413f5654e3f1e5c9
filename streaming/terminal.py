"""The terminal, and pipes and logs that people read: every line for them leaves the program here.

Nothing is printed but printable characters, line ends and our own colours, whatever a name holds. Lines are broken
between words where a terminal is narrower; in a pipe, which has no width, never.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from copy import copy
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from streaming.escapes import printable, with_short_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import ConsoleOptions, RenderableType

UNWRITABLE: Final = (OSError, ValueError, SystemExit)
"""Failures to print a line: no space, a closed file, a broken pipe, at which rich would end the program."""
_INDENT: Final = 4
_WORD: Final = re.compile(r"\s*\S+")


class AnswerFormat(StrEnum):
    """Output format of a command whose answer is no table of rows."""

    TABLE = "table"
    JSON = "json"


class Terminal(Console):
    """Stdout or stderr for people. Text is text: no markup, no emoji, no colours for numbers."""

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None, **settings: Any) -> None:  # noqa: ANN401 - rich's
        """Print to stdout, to stderr or to a file; the settings are those of rich, such as the width."""
        super().__init__(stderr=stderr, file=file, highlight=False, markup=False, emoji=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render for rich, which prints nothing else: the last place where a control character would get through."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment("\n".join(map(printable, segment.text.split("\n"))), segment.style)

    def row(self, text: str, style: str = "") -> None:
        """Print one line that is never broken."""
        if self.is_terminal:
            self.print(Text(printable(text), style=style), soft_wrap=True)
        else:
            self.file.write(printable(text) + "\n")
        if self.stderr:
            self.file.flush()

    def progress(self, text: str, *, is_last: bool) -> None:
        """Overwrite the line of a terminal; the last one stays."""
        self.file.write(f"\r{printable(text)}" + "\n" * is_last)
        self.file.flush()

    def document(self, lines: Iterable[str]) -> None:
        """Print lines of JSON, CSV or Markdown, which are encoded: to a pipe as they are."""
        for line in lines:
            self.file.write((printable(line) if self.is_terminal else line) + "\n")


def print_wrapped(console: Terminal, line: Text | str, *, in_pipe: int | None = None) -> None:
    """Print a line; on a terminal as several if it is longer, all but the first indented.

    Where there is no terminal, a line has ``in_pipe`` characters; None for no limit.
    """
    text = Text(printable(line)) if isinstance(line, str) else line
    text = _readable(text)
    width = console.width if console.is_terminal else in_pipe
    for part in [text] if width is None else wrapped(text, width):
        console.print(part, soft_wrap=True)


def print_log(line: Text) -> None:
    """Print a line of a program that runs for long on stderr.

    One that cannot be written is lost, as where the disk of a log is full or its reader has ended, and the work is not.
    """
    with suppress(*UNWRITABLE):
        print_wrapped(Terminal(stderr=True), line)


def _readable(line: Text) -> Text:
    """Return a line with what a terminal would act on as escapes, and without far too long words, in its colours."""
    readable = with_short_words(printable(line.plain))
    if readable == line.plain:
        return line
    parts = line.divide(sorted({end for span in line.spans for end in (span.start, span.end)}))
    return Text.assemble(*map(_readable_part, parts))


def _readable_part(part: Text) -> Text:
    """Return a part that has the same colours everywhere."""
    readable = Text(with_short_words(printable(part.plain)), style=part.style)
    for span in part.spans:
        readable.stylize(span.style)
    return readable


def wrapped(line: Text, width: int) -> Iterator[Text]:
    """Break a text between words only: what is longer than a line, such as an id, stays in one piece."""
    starts, room, taken = list[int](), width, 0
    for word in _WORD.finditer(line.plain):
        if taken and taken + cell_len(word[0]) > room:
            starts.append(word.start())
            room, taken = width - _INDENT, cell_len(word[0].lstrip())
        else:
            taken += cell_len(word[0])
    first, *others = line.divide(starts)
    yield first
    for each in others:
        blanks = len(each) - len(each.plain.lstrip())
        yield Text(" " * _INDENT) + each[blanks:]


# Logs: one record, one line, whatever is in it. A traceback follows on lines of its own.


class LogLines(logging.Formatter):
    """Lines of a log for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as a line, and its traceback below it."""
        plain = copy(record)
        plain.msg, plain.args = printable(record.getMessage()), ()
        return "\n".join(map(printable, super().format(plain).split("\n")))


class _ToStderr(logging.StreamHandler[Any]):
    """The handler that :func:`log_to_stderr` has set up last."""


def log_to_stderr(formatter: logging.Formatter, level: str = "WARNING") -> None:
    """Log to stderr in one format."""
    root = logging.getLogger()
    for earlier in [each for each in root.handlers if isinstance(each, _ToStderr)]:
        root.removeHandler(earlier)
    handler = _ToStderr()
    handler.setFormatter(formatter)
    root.addHandler(handler)
    root.setLevel(level)
