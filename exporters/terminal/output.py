"""Prints rows: as a table, which in a pipe has no limit of its width, as JSON or CSV for programs, as lines.

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

from exporters.terminal.table_layout import Field, columns_of, fitting, plain_lines, table_of, taken
from streaming.contracts.columns import Column
from streaming.contracts.tables import TABLES
from streaming.escapes import csv_line, json_document, json_text, printable
from streaming.terminal import Terminal, print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.read_model.times import Clock

Row = Mapping[str, Any]
UNKNOWN: Final = "?"
_HEADING: Final = "dim"
_UNLIMITED: Final = 10**6


class RowFormat(StrEnum):
    """Output format of rows."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class RowOutput:
    """A console, the format of the rows printed to it, and the clock of their times.

    Rows of a stream arrive one by one, without an end: a table as lines, JSON as one object per line.
    """

    console: Terminal
    format: RowFormat
    clock: Clock
    is_stream: bool = False

    def print(  # noqa: PLR0913 - what an output needs
        self,
        rows: Iterable[Row],
        fields: Iterable[Field],
        columns: Iterable[str],
        style: Callable[[Row], str],
        *,
        heading: bool = True,
        further: Mapping[str, Any] | None = None,
    ) -> None:
        """Print rows.

        Args:
            rows: in order.
            fields: columns of a table or line.
            columns: column names for JSON and CSV.
            style: returns the colour of a row.
            heading: whether CSV begins with the column names.
            further: further keys of the JSON document.
        """
        if self.format is RowFormat.JSON:
            self._json(rows, tuple(columns), further or {})
        elif self.format is RowFormat.CSV:
            self._csv(rows, tuple(columns), heading=heading)
        elif self.is_stream:
            self._lines(rows, self._chosen(fields), style)
        else:
            self._table(list(rows), self._chosen(fields), style)

    def _chosen(self, fields: Iterable[Field]) -> list[Field]:
        return [each for each in fields if self.format is RowFormat.WIDE or not each.is_wide]

    @property
    def is_for_people(self) -> bool:
        """True if headings and remarks may be printed between the rows."""
        return self.format in {RowFormat.TABLE, RowFormat.WIDE}

    def in_lines(self) -> RowOutput:
        """Return the same output for rows that arrive one by one."""
        return replace(self, is_stream=True)

    def say(self, sentence: str, style: str = "dim") -> None:
        """Print a remark; with JSON and CSV to stderr, so that stdout contains rows only."""
        if self.is_for_people:
            print_wrapped(self.console, Text(printable(sentence), style=style))
        else:
            Terminal(stderr=True).row(sentence)

    def _json(self, rows: Iterable[Row], columns: tuple[str, ...], further: Mapping[str, Any]) -> None:
        """Print one document, with a row on each line; of a stream an object per line."""
        values = ({name: machine(row.get(name), name, self.clock) for name in columns} for row in rows)
        if self.is_stream:
            self.console.document(map(json_text, values))
            return
        keys = [f"{json_text(key)}: {json_text(machine(value, key, self.clock))}, " for key, value in further.items()]
        self.console.document(json_document("rows", values, "".join(keys)))

    def _csv(self, rows: Iterable[Row], columns: tuple[str, ...], *, heading: bool) -> None:
        cells = ([_cell(machine(row.get(name), name, self.clock)) for name in columns] for row in rows)
        self.console.document(map(csv_line, chain([columns] if heading else [], cells)))

    def _lines(self, rows: Iterable[Row], fields: list[Field], style: Callable[[Row], str]) -> None:
        for row in rows:
            self.console.row("  ".join(text for field in fields if (text := field.shown(row))), style(row))

    def _table(self, rows: list[Row], fields: list[Field], style: Callable[[Row], str]) -> None:
        if not rows:
            return
        columns, styles, width = columns_of(rows, fields), [*map(style, rows)], self.console.width
        shown = fitting(columns, width) if self._is_narrow else columns
        if self._is_narrow and taken(column.widest for column in shown) > width:
            self.console.print(table_of(shown, styles, width), width=_UNLIMITED, soft_wrap=True)
        else:  # by far faster than rich
            for line, colour in zip(plain_lines(shown, len(rows)), [_HEADING, *styles], strict=True):
                self.console.row(line, colour)
        if left_out := [column.field.title for column in columns if column not in shown and any(column.texts)]:
            self.say(f"the terminal is too narrow for: {', '.join(left_out)} (-o wide)")

    @property
    def _is_narrow(self) -> bool:
        """True if lines have to fit: ``-o wide`` and pipes have no width."""
        return self.console.is_terminal and self.format is not RowFormat.WIDE


def output_of(chosen: RowFormat | None, clock: Clock, *, streams_in_pipe: bool = False) -> RowOutput:
    """Open stdout in the chosen format; by default as a table, in a pipe as lines if that is given."""
    console = Terminal()
    is_stream = streams_in_pipe and chosen is None and not console.is_terminal
    return RowOutput(console, chosen or RowFormat.TABLE, clock, is_stream)


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


_OF_ANSWERS: Final = frozenset({"as_of", "at", "now"})
_TIMESTAMPS: Final = _OF_ANSWERS | {name for table in TABLES.values() for name in _timestamps(table.columns)}
