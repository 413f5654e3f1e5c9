"""Lines for people: broken between words in a terminal, in one piece in a pipe, and nothing of them is lost."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest
from rich.text import Text

from streaming.terminal import Terminal, print_log, print_wrapped

ID = "loss:TsuxU8vkmQiwdw/0/3/isr_shrink"
LINE = Text.assemble(("WARNING ", "yellow"), f"job.listen-address  does not respond, see {ID} and 請求 begin")


def printed(line: Text, *, width: int, is_terminal: bool = True, in_pipe: int | None = None) -> list[str]:
    file = io.StringIO()
    print_wrapped(
        Terminal(file=file, width=width, force_terminal=is_terminal, color_system=None), line, in_pipe=in_pipe
    )
    return file.getvalue().splitlines()


def to_a_full_disk() -> IO[str]:
    return Path("/dev/full").open("w", buffering=1, encoding="utf-8")


def to_a_broken_pipe() -> IO[str]:
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w", buffering=1, encoding="utf-8")  # noqa: PTH123 - of a descriptor


@pytest.mark.parametrize("opened", [to_a_full_disk, to_a_broken_pipe])
def test_a_line_of_a_log_that_cannot_be_written_ends_nothing(
    opened: Callable[[], IO[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened()
    monkeypatch.setattr(sys, "stderr", file)
    print_log(LINE)
    print_log(LINE)
    monkeypatch.undo()
    with suppress(OSError):  # what it has kept of the lines
        file.close()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_a_terminal_gets_whole_words_and_no_line_that_is_too_wide(width: int) -> None:
    lines = printed(LINE, width=width)
    assert max(Text(line).cell_len for line in lines) <= width
    assert " ".join(lines).split() == LINE.plain.split()
    assert [line[:4].isspace() for line in lines] == [False, *[True] * (len(lines) - 1)]


def test_what_is_longer_than_a_line_stays_in_one_piece() -> None:
    assert printed(Text(f"id {ID} of main"), width=20) == ["id", f"    {ID}", "    of main"]


def test_in_a_pipe_a_line_is_never_broken_but_where_a_width_is_given() -> None:
    assert printed(LINE, width=40, is_terminal=False) == [LINE.plain]
    assert max(map(len, printed(LINE, width=200, is_terminal=False, in_pipe=50))) <= 50


def test_the_colours_of_a_text_stay_and_a_line_break_in_it_is_none() -> None:
    file = io.StringIO()
    console = Terminal(file=file, width=24, force_terminal=True, color_system="standard")
    print_wrapped(console, Text("broker 2 was lost and the leader moved\nto 3", style="red"))
    assert file.getvalue().splitlines() == [
        "\x1b[31mbroker 2 was lost and\x1b[0m",
        "    \x1b[31mthe leader moved\\nto\x1b[0m",
        "    \x1b[31m3\x1b[0m",
    ]
