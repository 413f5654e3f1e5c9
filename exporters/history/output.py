"""Rows for people, for pipes and for machines: a table, plain lines, JSON a line, CSV.

A row is a dictionary, column name to value. Knows no table of Delta but the types of its columns: what is a timestamp
there is microseconds here and ISO 8601 in what machines read. Unknown is ``?`` for people, null or empty for machines.
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

    from exporters.history.moments import Clock

Row = Mapping[str, Any]
UNKNOWN: Final = "?"


class Format(StrEnum):
    """How rows are printed; ``table`` is for a terminal, ``lines`` for a pipe."""

    TABLE = "table"
    LINES = "lines"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Field:
    """One column that people see.

    Attributes:
        title: its heading.
        text: what it says of a row, "" for nothing.
        is_number: aligned to the right.
        is_whole: never cut, however narrow the terminal.
    """

    title: str
    text: Callable[[Row], str]
    is_number: bool = False
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """Where rows go, and in which form."""

    console: Console
    format: Format
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
            rows: in their order.
            fields: what people see.
            columns: what machines get.
            style: colour of a row.
            heading: whether CSV begins with the names of the columns.
        """
        if self.format is Format.JSON:
            self._json(rows, tuple(columns))
        elif self.format is Format.CSV:
            self._csv(rows, tuple(columns), heading=heading)
        elif self.format is Format.LINES:
            self._lines(rows, tuple(fields), style)
        else:
            self._table(rows, tuple(fields), style)

    @property
    def is_for_people(self) -> bool:
        """Whether headings and remarks belong between the rows."""
        return self.format in {Format.TABLE, Format.LINES}

    def in_lines(self) -> Output:
        """Give the same output for rows that come one by one."""
        return replace(self, format=Format.LINES) if self.format is Format.TABLE else self

    def say(self, sentence: str, style: str = "dim") -> None:
        """Print a remark; machines get it where it does not disturb the rows."""
        if self.is_for_people:
            self.console.print(Text(sentence, style=style), soft_wrap=True)
        else:
            print(sentence, file=sys.stderr)  # noqa: T201 - a remark beside the rows

    def _json(self, rows: Iterable[Row], columns: tuple[str, ...]) -> None:
        for row in rows:
            told = {name: machine(row.get(name), name, self.clock) for name in columns}
            self.console.file.write(json.dumps(told, ensure_ascii=False) + "\n")

    def _csv(self, rows: Iterable[Row], columns: tuple[str, ...], *, heading: bool) -> None:
        writer = csv.writer(self.console.file, lineterminator="\n")
        if heading:
            writer.writerow(columns)
        writer.writerows([_cell(machine(row.get(name), name, self.clock)) for name in columns] for row in rows)

    def _lines(self, rows: Iterable[Row], fields: tuple[Field, ...], style: Callable[[Row], str]) -> None:
        for row in rows:
            line = "  ".join(told for field in fields if (told := field.text(row)))
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
        for column, field in zip(table.columns, fields, strict=True):
            if field.is_whole:
                column.min_width = max((len(field.text(row)) for row in rows), default=0)
        for row in rows:
            table.add_row(*(Text(field.text(row)) for field in fields), style=style(row))  # Text: a topic may be [red]
        if table.row_count:
            self.console.print(table)


def output_of(chosen: Format | None, clock: Clock) -> Output:
    """Choose the form: what was asked for, else a table on a terminal and lines in a pipe."""
    console = Console(highlight=False)
    fitting = Format.TABLE if console.is_terminal else Format.LINES
    return Output(console, chosen or fitting, clock)


@contextmanager
def until_closed() -> Iterator[None]:
    """End in silence when nobody reads on (``| head``) or Ctrl-C is pressed."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter complains at its end


def machine(value: Any, name: str, clock: Clock) -> Any:  # noqa: ANN401 - a value of any column
    """Spell a value for machines: moments in ISO 8601, in structs, too."""
    if name in _MOMENTS and isinstance(value, int):
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


def _moments(columns: Iterable[Column]) -> Iterator[str]:
    for column in columns:
        if column.type == "timestamp":
            yield column.name
        elif not isinstance(column.type, str):
            yield from _moments(column.type[0] if isinstance(column.type, list) else column.type)


_MOMENTS: Final = frozenset(name for table in TABLES.values() for name in _moments(table.columns))
