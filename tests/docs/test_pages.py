"""What single pages of the documentation say is what there is."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from streaming.contracts import health
from streaming.contracts.state import PARTITION_STATE

DOCS = Path(__file__).parents[2] / "docs"
SIZING = (DOCS / "sizing.md").read_text()


def rows(text: str) -> list[list[str]]:
    """The cells of every row of the tables in a text, without headings."""
    lines = re.findall(r"^\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for table in lines for row in table.splitlines()]


def test_the_definitions_have_every_state_of_a_partition_and_columns_that_exist() -> None:
    section = (DOCS / "definitions.md").read_text().split("\n## States of a partition\n")[1].split("\n## ")[0]
    states = {row[0].strip("`"): re.findall(r"`([a-z_]+)`", row[2]) for row in rows(section)}
    assert set(states) == set(health.STATES) - {health.PARTITIONS}
    columns = {column.name for column in PARTITION_STATE}
    assert {column for each in states.values() for column in each} - columns == set()


def test_every_figure_of_the_sizing_has_a_command() -> None:
    figures = rows(SIZING.split("\n## Figures")[1].split("\n## ")[0])
    assert figures
    assert [row for row in figures if len(row) != 2 or not re.fullmatch(r"`[^`]+`", row[1])] == []


@pytest.mark.parametrize("command", re.findall(r"`(\.venv/bin/[^`]+)`", SIZING))
def test_every_command_that_measures_exists_with_its_options(command: str) -> None:
    program, *words = command.removeprefix(".venv/bin/").split()
    if program == "pytest":
        assert [word for word in words if not (DOCS.parent / word).is_file()] == []
        return
    module, options = words[1], [word for word in words[2:] if word.startswith("--")]
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).read_text()
    assert [option for option in options if option not in source] == []  # in the usage of its docstring
