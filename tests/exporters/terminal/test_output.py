"""Tables: on a terminal nothing is cut however narrow it is, in a pipe every row is one line below the heading."""

from __future__ import annotations

import io
import re

import pytest
from typer.testing import CliRunner

from exporters.read_model.times import Clock
from exporters.terminal.output import Row, RowFormat, RowOutput
from exporters.terminal.table_layout import SENTENCE, WORDS, Field, columns_of, plain_lines
from streaming.commands import app
from streaming.contracts.events import Cause, EventKind, IncidentClass
from streaming.terminal import Terminal

FIELDS = (
    Field("opened", lambda row: row["opened"]),
    Field("lasted so far", lambda row: row["lasted"], is_number=True),
    Field("suspects", lambda row: row["suspects"], wraps=WORDS),
    Field("summary", lambda row: row["summary"], wraps=SENTENCE, below=1),
    Field("id", lambda row: row["id"], below=2),
)
SUMMARY = "broker 2 was lost: 6 partitions under-replicated for 57.8 s, 0 under min ISR"
ID = "loss:F9RVAhGVRWqvFpQkpufSGg/YWqTkqDNT02zdN6G5znDVg/0/1/isr_shrink"
ROW: Row = {"opened": "11:19:32", "lasted": "57.8s", "suspects": "2 (1.00)", "summary": SUMMARY, "id": ID}


def printed(width: int, *rows: Row, row_format: RowFormat = RowFormat.TABLE, **settings: bool) -> list[str]:
    file = io.StringIO()
    console = Terminal(file=file, width=width, color_system=None, **settings)  # type: ignore[arg-type]
    RowOutput(console, row_format, Clock(0)).print(rows, FIELDS, [], lambda _: "")
    return file.getvalue().splitlines()


def test_a_column_is_left_out_and_named_before_a_sentence_becomes_too_narrow() -> None:
    assert printed(90, ROW, force_terminal=True) == [
        "opened    lasted so far  suspects  summary                                                ",
        "11:19:32          57.8s  2 (1.00)  broker 2 was lost: 6 partitions under-replicated for   ",
        "                                   57.8 s, 0 under min ISR                                ",
        "the terminal is too narrow for: id (-o wide)",
    ]
    assert printed(52, {**ROW, "id": "loss:1"}, force_terminal=True) == [
        "opened    lasted so far  suspects",
        "11:19:32          57.8s  2 (1.00)",
        "the terminal is too narrow for: summary, id (-o",
        "    wide)",
    ]
    wide = printed(20, ROW, row_format=RowFormat.WIDE, force_terminal=True)
    assert wide == printed(20, ROW), "as in a pipe"


def test_in_a_pipe_a_table_has_its_heading_and_one_line_per_row() -> None:
    heading, *rows = printed(80, ROW, {**ROW, "suspects": ""})
    assert heading.split() == ["opened", "lasted", "so", "far", "suspects", "summary", "id"]
    assert [heading.index("summary"), heading.index("id")] == [rows[0].index(SUMMARY), rows[0].index(ID)]
    assert rows[1].index(ID) == rows[0].index(ID)


def test_what_is_twice_as_wide_as_a_letter_is_counted_twice() -> None:
    fields = (Field("group", lambda row: row["group"]), Field("lag", lambda row: row["lag"], is_number=True))
    rows = [{"group": "請求", "lag": "5"}, {"group": "bill", "lag": "12"}]
    lines = [*plain_lines(columns_of(rows, fields), len(rows))]
    assert lines == ["group  lag", "請求     5", "bill    12"]


@pytest.mark.parametrize(("command", "values"), [("events", (*Cause, *EventKind)), ("incidents", (*IncidentClass,))])
def test_no_value_is_cut_within_in_the_help_of_a_narrow_terminal(command: str, values: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"}).stdout
    assert set(values) - set(re.findall(r"\w+", shown)) == set()
