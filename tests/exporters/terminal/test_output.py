"""Tables on a terminal: which columns are truncated when they do not fit."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from typer.testing import CliRunner

from exporters.terminal.output import Field, Row, RowFormat, RowOutput
from exporters.terminal.time_parsing import Clock
from streaming.commands import app
from streaming.contracts.events import Cause, EventKind
from streaming.contracts.incidents import IncidentClass

FIELDS = (
    Field("opened", lambda row: row["opened"], is_whole=True),
    Field("lasted", lambda row: row["lasted"], is_number=True),
    Field("class", lambda row: row["class"], is_whole=True),
    Field("suspects", lambda row: row["suspects"]),
    Field("summary", lambda row: row["summary"]),
    Field("id", lambda row: row["id"]),
)
ROW: Row = {
    "opened": "11:19:32",
    "lasted": "57.8s",
    "class": "broker_loss",
    "suspects": "2 (1.00)",
    "summary": "broker 2 was lost: 6 partitions under-replicated for 57.8 s, 0 under min ISR",
    "id": "loss:F9RVAhGVRWqvFpQkpufSGg/YWqTkqDNT02zdN6G5znDVg/0/1/isr_shrink",
}


def printed(width: int) -> list[str]:
    file = io.StringIO()
    output = RowOutput(Console(file=file, width=width), RowFormat.TABLE, Clock(0))
    output.print([ROW], FIELDS, [], lambda _: "")
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [70, 80, 100, 130])
def test_the_longest_texts_are_truncated_and_short_ones_stay_whole(width: int) -> None:
    heading, row = printed(width)
    assert heading.split() == [field.title for field in FIELDS]
    assert row.startswith("11:19:32   57.8s  broker_loss  2 (1.00)  broker 2 was")
    assert row.count("…") == 2
    assert len(row.rstrip()) <= width


def test_on_a_wide_terminal_nothing_is_truncated() -> None:
    _, row = printed(200)
    assert row.split("  ") == ["11:19:32", " 57.8s", *(ROW[name] for name in ("class", "suspects", "summary", "id"))]


@pytest.mark.parametrize(("command", "values"), [("events", (*Cause, *EventKind)), ("incidents", (*IncidentClass,))])
def test_no_value_is_cut_within_in_the_help_of_a_narrow_terminal(command: str, values: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"}).stdout
    assert set(values) - set(re.findall(r"\w+", shown)) == set()
