"""Columns of a table for people, and which of them have room. Nothing is cut: what does not fit is named, not shown.

On a terminal rich lays out what is too wide, and breaks columns of words; in a pipe every row is one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from streaming.escapes import printable, shortened, with_short_words

_GAP: Final = 2
_HEADING: Final = "dim"
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
        below: a terminal that is too narrow leaves its column out, the highest first, of equal ones the last; 0 stays.
        is_wide: only ``-o wide`` shows it.
    """

    title: str
    text: Callable[[Mapping[str, Any]], str]
    is_number: bool = False
    wraps: int = 0
    below: int = 0
    is_wide: bool = False

    def shown(self, row: Mapping[str, Any]) -> str:
        """Return the text of a row for people, whatever names are in it."""
        text = printable(self.text(row))
        return with_short_words(text) if self.wraps else shortened(text)


class TextColumn(NamedTuple):
    """A field with its texts, one per row."""

    field: Field
    texts: list[str]

    @property
    def widest(self) -> int:
        """Characters of its longest text."""
        return max(map(cell_len, (self.field.title, *self.texts)))

    @property
    def narrowest(self) -> int:
        """Characters without a broken word; a heading may always be broken between its words."""
        title, whole = max(map(cell_len, self.field.title.split())), max(map(cell_len, self.texts), default=0)
        if not self.field.wraps:
            return max(title, whole)
        words = (word for text in self.texts for word in text.split())
        return max(title, min(whole, max(self.field.wraps, *map(cell_len, words), 1)))


def columns_of(rows: Sequence[Mapping[str, Any]], fields: Sequence[Field]) -> list[TextColumn]:
    """Return the columns with their texts."""
    return [TextColumn(field, [field.shown(row) for row in rows]) for field in fields]


def fitting(columns: list[TextColumn], width: int) -> list[TextColumn]:
    """Return the columns that stand next to each other in the width of a terminal without a broken word."""
    while taken(column.narrowest for column in columns) > width:
        least = max(reversed(columns), key=lambda column: column.field.below)
        if not least.field.below:
            break
        columns = [column for column in columns if column is not least]
    return columns


def taken(widths: Iterable[int]) -> int:
    """Return the width of columns with the gaps between them."""
    each = list(widths)
    return sum(each) + _GAP * (len(each) - 1)


def table_of(columns: Sequence[TextColumn], styles: Sequence[str], width: int) -> Table:
    """Return a table in which columns of words are broken between words, the longest ones first.

    It is wider than the terminal where a word or an id is.
    """
    for longest in range(max(column.widest for column in columns), 0, -1):
        widths = [max(column.narrowest, min(column.widest, longest)) for column in columns]
        if taken(widths) <= width:
            break
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style=_HEADING)
    for column, size in zip(columns, widths, strict=True):
        table.add_column(
            column.field.title, justify="right" if column.field.is_number else "left", min_width=size, max_width=size
        )
    for index, style in enumerate(styles):
        table.add_row(*(Text(column.texts[index]) for column in columns), style=style)
    return table


def plain_lines(columns: Sequence[TextColumn], count: int) -> Iterator[str]:
    """Yield a line per row, after that of the headings; nothing where there is no row."""
    widths = [column.widest for column in columns]
    for index in range(-1, count or -1):
        texts = (column.field.title if index < 0 else column.texts[index] for column in columns)
        padded = (
            " " * (size - cell_len(text)) + text if column.field.is_number else text + " " * (size - cell_len(text))
            for column, size, text in zip(columns, widths, texts, strict=True)
        )
        yield (" " * _GAP).join(padded).rstrip()
