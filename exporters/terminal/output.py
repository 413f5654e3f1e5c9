"""Prints rows: as a table on a terminal, as lines in a pipe, as JSON Lines or CSV for programs.

A row is a dictionary, column name to value. Knows only the column types of the Delta tables: a timestamp is UTC
microseconds in a row and ISO 8601 in JSON and CSV. Unknown is ``?`` on a terminal, null in JSON, empty in CSV.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.contracts.columns import Column
from streaming.contracts.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.terminal.time_parsing import Clock

Row = Mapping[str, Any]
UNKNOWN: Final = "?"
_GAP: Final = "  "
_SHORTEST: Final = 8
"""Characters that a truncated column keeps, however narrow the terminal."""


class RowFormat(StrEnum):
    """Output format of rows; by default ``table`` on a terminal, ``lines`` in a pipe."""

    TABLE = "table"
    LINES = "lines"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a table, or one part of a line.

    Attributes:
        title: heading.
        text: formats the value of a row, "" for none.
        is_number: align right.
        is_whole: never truncate, however narrow the terminal.
        is_path: truncate in the middle: paths differ at their end.
    """

    title: str
    text: Callable[[Row], str]
    is_number: bool = False
    is_whole: bool = False
    is_path: bool = False


@dataclass(frozen=True, slots=True)
class RowOutput:
    """A console and the format of the rows printed to it."""

    console: Console
    format: RowFormat
    clock: Clock

    def print(
        self,
        rows: Iterable[Row],
        fields: Iterable[Field],
        columns: Iterable[str],
        style: Callable[[Row], str],
        *,
        heading: bool = True,
    ) -> None:
        """Print rows.

        Args:
            rows: in order.
            fields: columns of a table or line.
            columns: column names for JSON and CSV.
            style: returns the colour of a row.
            heading: whether CSV begins with the column names.
        """
        if self.format is RowFormat.JSON:
            self._json(rows, tuple(columns))
        elif self.format is RowFormat.CSV:
            self._csv(rows, tuple(columns), heading=heading)
        elif self.format is RowFormat.LINES:
            self._lines(rows, tuple(fields), style)
        else:
            self._table(rows, tuple(fields), style)

    @property
    def is_for_people(self) -> bool:
        """Whether headings and remarks may be printed between the rows."""
        return self.format in {RowFormat.TABLE, RowFormat.LINES}

    def in_lines(self) -> RowOutput:
        """Return the same output for rows that arrive one by one: a table as lines."""
        return replace(self, format=RowFormat.LINES) if self.format is RowFormat.TABLE else self

    def say(self, sentence: str, style: str = "dim") -> None:
        """Print a remark; with JSON and CSV to stderr, so that stdout contains rows only."""
        if self.is_for_people:
            self.console.print(Text(sentence, style=style), soft_wrap=True)
        else:
            print(sentence, file=sys.stderr)  # noqa: T201 - a remark beside the rows

    def _json(self, rows: Iterable[Row], columns: tuple[str, ...]) -> None:
        for row in rows:
            values = {name: machine(row.get(name), name, self.clock) for name in columns}
            self.console.file.write(json.dumps(values, ensure_ascii=False) + "\n")

    def _csv(self, rows: Iterable[Row], columns: tuple[str, ...], *, heading: bool) -> None:
        writer = csv.writer(self.console.file, lineterminator="\n")
        if heading:
            writer.writerow(columns)
        writer.writerows([_cell(machine(row.get(name), name, self.clock)) for name in columns] for row in rows)

    def _lines(self, rows: Iterable[Row], fields: tuple[Field, ...], style: Callable[[Row], str]) -> None:
        for row in rows:
            line = "  ".join(text for field in fields if (text := field.text(row)))
            if self.console.is_terminal:
                self.console.print(Text(line, style=style(row)), soft_wrap=True)
            else:
                self.console.file.write(line + "\n")

    def _table(self, rows: Iterable[Row], fields: tuple[Field, ...], style: Callable[[Row], str]) -> None:
        table = Table(box=None, header_style="dim", pad_edge=False)
        for field in fields:
            side: Literal["left", "right"] = "right" if field.is_number else "left"
            table.add_column(field.title, justify=side, no_wrap=not field.is_number, overflow="ellipsis")
        rows = list(rows)
        widths = _widths(rows, fields, self.console.width)
        is_wide = _has_room(rows, fields, self.console.width)
        for column, field, width in zip(table.columns, fields, widths, strict=True):
            column.max_width = None if field.is_number and is_wide else width
            column.min_width = width if field.is_whole else None
        for row in rows:
            cells = (
                shortened(field.text(row), width) if field.is_path else field.text(row)
                for field, width in zip(fields, widths, strict=True)
            )
            table.add_row(*map(Text, cells), style=style(row))  # Text: a topic may be [red]
        if table.row_count:
            self.console.print(table)


def shortened(path: str, width: int) -> str:
    """Return a path of at most ``width`` characters, with an ellipsis for its middle."""
    if len(path) <= width:
        return path
    end = width * 2 // 3
    return f"{path[: width - end - 1]}…{path[-end:]}"


def _has_room(rows: list[Row], fields: tuple[Field, ...], width: int) -> bool:
    """Return whether everything fits, the titles in one line."""
    whole = sum(max(map(len, (field.title, *map(field.text, rows)))) for field in fields)
    return whole + len(_GAP) * (len(fields) - 1) <= width


def _widths(rows: list[Row], fields: tuple[Field, ...], width: int) -> list[int]:
    """Return the width of each column of a table in a terminal of ``width`` characters.

    Only text is truncated, the longest first: rich alone shrinks every column alike, short ones to nothing. The title
    of a number may be broken between its words.
    """
    titles = [max(field.title.split() or [""], key=len) if field.is_number else field.title for field in fields]
    whole = [max(map(len, (title, *map(field.text, rows)))) for title, field in zip(titles, fields, strict=True)]
    is_cut = [not (field.is_number or field.is_whole) for field in fields]
    room = width - len(_GAP) * (len(fields) - 1)
    for longest in range(max(whole, default=0), _SHORTEST, -1):
        widths = [min(each, longest) if cut else each for each, cut in zip(whole, is_cut, strict=True)]
        if sum(widths) <= room:
            return widths
    return [min(each, _SHORTEST) if cut else each for each, cut in zip(whole, is_cut, strict=True)]


def output_of(chosen: RowFormat | None, clock: Clock) -> RowOutput:
    """Open stdout in the chosen format, or the default one: a table on a terminal, lines in a pipe."""
    console = Console(highlight=False)
    default = RowFormat.TABLE if console.is_terminal else RowFormat.LINES
    return RowOutput(console, chosen or default, clock)


@contextmanager
def until_closed() -> Iterator[None]:
    """Exit without a traceback when stdout is closed (``| head``) or Ctrl-C is pressed."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes stdout at exit


def machine(value: Any, name: str, clock: Clock) -> Any:  # noqa: ANN401 - a value of any column
    """Convert a value for JSON and CSV: timestamps to ISO 8601, also inside structs and lists."""
    if name in _TIMESTAMPS and isinstance(value, int):
        return clock.iso(value)
    if isinstance(value, Mapping):
        return {key: machine(item, key, clock) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [machine(item, "", clock) for item in value]
    return value


def _cell(value: Any) -> Any:  # noqa: ANN401 - a value of any column
    if isinstance(value, list) and not any(isinstance(item, dict) for item in value):
        return " ".join(map(str, value))
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else value


def _timestamps(columns: Iterable[Column]) -> Iterator[str]:
    for column in columns:
        if column.type == "timestamp":
            yield column.name
        elif not isinstance(column.type, str):
            yield from _timestamps(column.type[0] if isinstance(column.type, list) else column.type)


_TIMESTAMPS: Final = frozenset(name for table in TABLES.values() for name in _timestamps(table.columns))
