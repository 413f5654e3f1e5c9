"""Prints rows: as a table, which in a pipe has no limit of its width, as lines, as JSON Lines or CSV for programs.

A row is a dictionary, column name to value. Knows only the column types of the Delta tables: a timestamp is UTC
microseconds in a row and ISO 8601 in JSON and CSV. Unknown is ``?`` on a terminal, null in JSON, empty in CSV.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from exporters.terminal.table_layout import Field, table_lines
from streaming.contracts.columns import Column
from streaming.contracts.tables import TABLES
from streaming.escapes import csv_line, json_text, printable
from streaming.terminal import Terminal, print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.read_model.times import Clock

Row = Mapping[str, Any]
UNKNOWN: Final = "?"
_HEADING: Final = "dim"


class RowFormat(StrEnum):
    """Output format of rows."""

    TABLE = "table"
    LINES = "lines"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class RowOutput:
    """A console and the format of the rows printed to it."""

    console: Terminal
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
        """True if headings and remarks may be printed between the rows."""
        return self.format in {RowFormat.TABLE, RowFormat.LINES}

    def in_lines(self) -> RowOutput:
        """Return the same output for rows that arrive one by one: a table as lines."""
        return replace(self, format=RowFormat.LINES) if self.format is RowFormat.TABLE else self

    def say(self, sentence: str, style: str = "dim") -> None:
        """Print a remark; with JSON and CSV to stderr, so that stdout contains rows only."""
        if self.is_for_people:
            print_wrapped(self.console, Text(printable(sentence), style=style))
        else:
            Terminal(stderr=True).row(sentence)

    def _json(self, rows: Iterable[Row], columns: tuple[str, ...]) -> None:
        values = ({name: machine(row.get(name), name, self.clock) for name in columns} for row in rows)
        self.console.document(map(json_text, values))

    def _csv(self, rows: Iterable[Row], columns: tuple[str, ...], *, heading: bool) -> None:
        cells = ([_cell(machine(row.get(name), name, self.clock)) for name in columns] for row in rows)
        self.console.document(map(csv_line, chain([columns] if heading else [], cells)))

    def _lines(self, rows: Iterable[Row], fields: tuple[Field, ...], style: Callable[[Row], str]) -> None:
        for row in rows:
            self.console.row("  ".join(text for field in fields if (text := field.shown(row))), style(row))

    def _table(self, rows: Iterable[Row], fields: tuple[Field, ...], style: Callable[[Row], str]) -> None:
        rows = list(rows)
        for line, index in table_lines(rows, fields, self.console.width if self.console.is_terminal else None):
            self.console.row(line, _HEADING if index is None else style(rows[index]))


def output_of(chosen: RowFormat | None, clock: Clock, *, in_pipe: RowFormat = RowFormat.TABLE) -> RowOutput:
    """Open stdout in the chosen format; by default as a table, in a pipe in another format if that is given."""
    console = Terminal()
    return RowOutput(console, chosen or (RowFormat.TABLE if console.is_terminal else in_pipe), clock)


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
    if isinstance(value, list) and all(map(_is_word, value)):
        return " ".join(map(str, value))
    if isinstance(value, list | dict):
        return json_text(value)
    return str(value).lower() if isinstance(value, bool) else value


def _is_word(item: Any) -> bool:  # noqa: ANN401 - an item of any list
    """Return whether an item can stand in a list that spaces separate, and which is no JSON."""
    if isinstance(item, str):
        return item.split() == [item] and not item.startswith(("[", "{"))
    return not isinstance(item, dict | list)


def _timestamps(columns: Iterable[Column]) -> Iterator[str]:
    for column in columns:
        if column.type == "timestamp":
            yield column.name
        elif not isinstance(column.type, str):
            yield from _timestamps(column.type[0] if isinstance(column.type, list) else column.type)


_TIMESTAMPS: Final = frozenset(name for table in TABLES.values() for name in _timestamps(table.columns))
