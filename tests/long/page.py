"""The section of docs/quality.md of what ``make test-long`` has shown: a row for each part."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

from docs.builder.quality import QUALITY, ROOT, Section, section_of, write_section
from tests.long.parts import PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE: Final = ROOT / QUALITY
NOT_RUN: Final = "not run yet"
PASSED, FAILED = "passed", "failed"
HEADING: Final = """\
## Long tests

What takes too long for `make test` runs in parts, each of an hour at most: `make test-long ARGS=--write` runs them and
writes this section, `ARGS="--part judge --seed 5 --write"` one of them. A part that failed is written, too.

| part | what it shows | result | commit | date | minutes | seed |
|---|---|---|---|---|---:|---:|
"""


@dataclass(frozen=True)
class Row:
    """What one run of a part has shown, as it is written."""

    result: str = NOT_RUN
    commit: str = ""
    date: str = ""
    minutes: str = ""
    seed: str = ""


def read() -> dict[str, Row]:
    """Read the rows of the page, by part."""
    return rows_in(section_of(PAGE.read_text(encoding="utf-8"), Section.LONG))


def rows_in(text: str) -> dict[str, Row]:
    """Read the rows of a text of the section."""
    rows = {}
    for line in re.findall(r"^\| [a-z0-9-]+ \|.*\|$", text, re.MULTILINE):
        part, _, result, commit, *rest = (cell.strip() for cell in line.strip("|").split("|"))
        rows[part] = Row(result, commit.strip("`"), *rest)
    rows.pop("part", None)
    return rows


def rendered(rows: Mapping[str, Row]) -> str:
    """Render the section: a row for each part, whether it was run or not."""
    lines = []
    for name, part in PARTS.items():
        result, commit, *rest = astuple(rows.get(name, Row()))
        cells = [name, part.shows, result, f"`{commit}`" if commit else "", *rest]
        lines.append("| " + " | ".join(cells) + " |\n")
    return HEADING + "".join(lines)


def write(part: str, row: Row) -> None:
    """Replace the row of a part."""
    write_section(Section.LONG, rendered({**read(), part: row}), PAGE)


def render() -> None:
    """Write the rows again, with a row for each new part."""
    write_section(Section.LONG, rendered(read()), PAGE)
