"""Tables: on a terminal nothing is cut however narrow it is, in a pipe every row is one line below the heading."""

from __future__ import annotations

import io
import re

import pytest
from typer.testing import CliRunner

from exporters.read_model.times import Clock
from exporters.terminal.output import Row, RowFormat, RowOutput
from exporters.terminal.table_layout import SENTENCE, WORDS, Field, table_lines
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


def printed(width: int, *rows: Row, **settings: bool) -> list[str]:
    file = io.StringIO()
    console = Terminal(file=file, width=width, color_system=None, **settings)  # type: ignore[arg-type]
    RowOutput(console, RowFormat.TABLE, Clock(0)).print(rows, FIELDS, [], lambda _: "")
    return file.getvalue().splitlines()


def test_a_column_goes_below_its_row_before_a_sentence_becomes_too_narrow() -> None:
    assert printed(80, ROW, force_terminal=True) == [
        "          lasted",
        "opened    so far  suspects  summary",
        "11:19:32   57.8s  2 (1.00)  broker 2 was lost: 6 partitions under-replicated for",
        "                            57.8 s, 0 under min ISR",
        f"    id {ID}",
    ]
    assert printed(52, {**ROW, "id": "loss:1"}, force_terminal=True)[1:] == [
        "11:19:32          57.8s  2 (1.00)",
        "    summary broker 2 was lost: 6 partitions",
        "    under-replicated for 57.8 s, 0 under min ISR",
        "    id loss:1",
    ]


def test_what_room_is_left_makes_a_heading_lower() -> None:
    titles = ("partitions under min isr", "safe to stop")
    fields = [Field(title, lambda row: row["id"], is_number=True) for title in titles]
    heights = {
        width: len([line for line, index in table_lines([{"id": "1"}], fields, width) if index is None])
        for width in (16, 25, 30, 40)
    }
    assert heights == {16: 3, 25: 2, 30: 2, 40: 1}


def test_in_a_pipe_a_table_has_its_heading_and_one_line_per_row() -> None:
    heading, *rows = printed(80, ROW, {**ROW, "suspects": ""})
    assert heading.split() == ["opened", "lasted", "so", "far", "suspects", "summary", "id"]
    assert [heading.index("summary"), heading.index("id")] == [rows[0].index(SUMMARY), rows[0].index(ID)]
    assert rows[1].index(ID) == rows[0].index(ID)


def test_what_is_twice_as_wide_as_a_letter_is_counted_twice() -> None:
    fields = (Field("group", lambda row: row["group"]), Field("lag", lambda row: row["lag"], is_number=True))
    lines = [
        line for line, _ in table_lines([{"group": "請求", "lag": "5"}, {"group": "bill", "lag": "12"}], fields, 80)
    ]
    assert lines == ["group  lag", "請求     5", "bill    12"]


@pytest.mark.parametrize(("command", "values"), [("events", (*Cause, *EventKind)), ("incidents", (*IncidentClass,))])
def test_no_value_is_cut_within_in_the_help_of_a_narrow_terminal(command: str, values: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"}).stdout
    assert set(values) - set(re.findall(r"\w+", shown)) == set()
