"""Lays out a table in the width of a terminal. Nothing is cut: columns of words are wrapped, others go below their row.

Without a width, as in a pipe, every row is one line. Knows texts, no colours and no console.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from rich.cells import cell_len

from streaming.escapes import printable, shortened, with_short_words

_GAP: Final = "  "
_INDENT: Final = "    "
WORDS: Final = 20
SENTENCE: Final = 36


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a table, or one part of a line.

    Attributes:
        title: heading.
        text: formats the value of a row, "" for none.
        is_number: align right.
        wraps: its words may stand on several lines of at least so many characters: ``WORDS`` or ``SENTENCE``. 0 is for
            ids and numbers, which stay in one piece.
        below: in a terminal that is too narrow its column goes below the row, the highest first; 0 never goes.
    """

    title: str
    text: Callable[[Mapping[str, Any]], str]
    is_number: bool = False
    wraps: int = 0
    below: int = 0

    def shown(self, row: Mapping[str, Any]) -> str:
        """Return the text of a row for people, whatever names are in it."""
        text = printable(self.text(row))
        return with_short_words(text) if self.wraps else shortened(text)


@dataclass(frozen=True, slots=True)
class _Column:
    """A field with its texts, one per row."""

    field: Field
    texts: list[str]

    @property
    def widest(self) -> int:
        return max(map(cell_len, (self.field.title, *self.texts)))

    @property
    def narrowest(self) -> int:
        """The width without a broken word; a title may always be broken between its words."""
        title = _longest_word(self.field.title)
        if not self.field.wraps:
            return max(title, *map(cell_len, self.texts))
        whole = max(map(cell_len, self.texts))
        return max(title, min(whole, max(self.field.wraps, *map(_longest_word, self.texts))))


def table_lines(
    rows: Sequence[Mapping[str, Any]], fields: Sequence[Field], width: int | None
) -> Iterator[tuple[str, int | None]]:
    """Lay out a table; yield its lines, each with the index of its row, None of the heading.

    Args:
        rows: in order; without any there are no lines.
        fields: the columns; at least the first one stays in the row.
        width: of the terminal, in characters; None where there is no limit.
    """
    if not rows:
        return
    columns = [_Column(field, [field.shown(row) for row in rows]) for field in fields]
    beside, below = (columns, []) if width is None else _placed(columns, width)
    widths = [column.widest for column in beside] if width is None else _headed(beside, _widths(beside, width), width)
    heading = [_heading(column, size) for column, size in zip(beside, widths, strict=True)]
    lines = max(map(len, heading))
    yield from ((line, None) for line in _joined(beside, widths, [[""] * (lines - len(h)) + h for h in heading]))
    for index in range(len(rows)):
        cells = [_cell(column, index, size) for column, size in zip(beside, widths, strict=True)]
        yield from ((line, index) for line in _joined(beside, widths, cells))
        yield from ((line, index) for line in _lines_below(below, index, width or 0))


def _placed(columns: list[_Column], width: int) -> tuple[list[_Column], list[_Column]]:
    """Decide which columns stand next to each other, and which below the row."""
    beside, below = columns, list[_Column]()
    while sum(column.narrowest for column in beside) + _gaps(beside) > width:
        last = max(column.field.below for column in beside)
        if not last:
            break
        below = [*(column for column in beside if column.field.below == last), *below]
        beside = [column for column in beside if column.field.below != last]
    return beside, below


def _widths(columns: list[_Column], width: int) -> list[int]:
    """Return the width of each column: what room there is goes to those that wrap, the longest of them shrink first."""
    room = width - _gaps(columns)
    widest = [column.widest for column in columns]
    if sum(widest) <= room:
        return widest
    narrowest = [column.narrowest for column in columns]
    for longest in range(max(widest), 0, -1):
        widths = [
            max(least, min(most, longest)) if column.field.wraps else least
            for column, most, least in zip(columns, widest, narrowest, strict=True)
        ]
        if sum(widths) <= room:
            return widths
    return narrowest


def _headed(columns: list[_Column], widths: list[int], width: int) -> list[int]:
    """Widen the columns with the highest headings by what room is left, so that the heading has few lines."""
    room = width - _gaps(columns)
    while (most := max(len(_heading(*each)) for each in zip(columns, widths, strict=True))) > 1:
        grown = [
            next((wider for wider in range(size, room + 1) if len(_heading(column, wider)) < most), size)
            for column, size in zip(columns, widths, strict=True)
        ]
        if grown == widths or sum(grown) > room:
            break
        widths = grown
    return widths


def _heading(column: _Column, width: int) -> list[str]:
    return textwrap.wrap(column.field.title, width)


def _cell(column: _Column, index: int, width: int) -> list[str]:
    text = column.texts[index]
    return (_wrapped(text, width) if column.field.wraps and cell_len(text) > width else [text]) or [""]


def _joined(columns: list[_Column], widths: list[int], cells: list[list[str]]) -> Iterator[str]:
    """Join cells of several lines into lines."""
    for parts in zip_longest(*cells, fillvalue=""):
        padded = (
            " " * (size - cell_len(part)) + part if column.field.is_number else part + " " * (size - cell_len(part))
            for column, size, part in zip(columns, widths, parts, strict=True)
        )
        yield _GAP.join(padded).rstrip()


def _lines_below(columns: list[_Column], index: int, width: int) -> Iterator[str]:
    """Return what stands below a row: title and text of each column, as many on a line as fit."""
    line = ""
    for column in columns:
        if not (text := column.texts[index]):
            continue
        said = f"{column.field.title} {text}"
        if line and cell_len(_INDENT + line + _GAP + said) > width:
            yield from _indented(line, width)
            line = ""
        line += _GAP * bool(line) + said
    if line:
        yield from _indented(line, width)


def _indented(line: str, width: int) -> list[str]:
    return [_INDENT + each for each in _wrapped(line, width - len(_INDENT))]


def _wrapped(text: str, width: int) -> list[str]:
    """Break between words only: an id that is longer than the line is left to the terminal."""
    return textwrap.wrap(text, max(1, width), break_long_words=False, break_on_hyphens=False)


def _gaps(columns: list[_Column]) -> int:
    return len(_GAP) * (len(columns) - 1)


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)
