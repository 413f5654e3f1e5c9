"""The page of what ``make test-long`` has shown, a row for each part: ``docs/long_tests.md``."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.long.parts import PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE: Final = Path(__file__).parents[2] / "docs" / "long_tests.md"
NOT_RUN: Final = "not run yet"
PASSED, FAILED = "passed", "failed"
HEADING: Final = """\
# What the long tests have shown

What takes too long for `make test` runs in parts, each of an hour at most: `make test-long ARGS=--write` runs them and
writes this page, `ARGS="--part judge --write"` one of them, `ARGS="--resume --write"` those that have not passed at the
commit that is checked out. The last one is `make flaky`. A part that failed is written, too.

| part | what it shows | command | seed | commit | date | minutes | result |
|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """What one run of a part has shown, as it is written."""

    command: str = ""
    seed: str = ""
    commit: str = ""
    date: str = ""
    minutes: str = ""
    result: str = NOT_RUN


def read() -> dict[str, Row]:
    """Read the rows of the page, by part."""
    return rows_in(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}


def rows_in(text: str) -> dict[str, Row]:
    """Read the rows of a text of the page."""
    rows = {}
    for line in re.findall(r"^\| [a-z0-9-]+ \|.*\|$", text, re.MULTILINE):
        part, _, command, seed, commit, date, minutes, result = (cell.strip() for cell in line.strip("|").split("|"))
        rows[part] = Row(command.strip("`"), seed, commit.strip("`"), date, minutes, result)
    rows.pop("part", None)
    return rows


def rendered(rows: Mapping[str, Row]) -> str:
    """Render the page: a row for each part, whether it was run or not."""
    lines = []
    for name, part in PARTS.items():
        row = rows.get(name, Row())
        if row.result == NOT_RUN:
            row = Row()  # it may have another command by now
        command, seed, commit, *rest = astuple(row)
        code = (f"`{each}`" if each else "" for each in (command or f"python -m {part.command}", commit))
        cells = [name, part.shows, next(code), seed, next(code), *rest]
        lines.append("| " + " | ".join(cells) + " |\n")
    return HEADING + "".join(lines)


def write(part: str, row: Row) -> None:
    """Replace the row of a part."""
    PAGE.write_text(rendered({**read(), part: row}), encoding="utf-8")
