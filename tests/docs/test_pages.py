"""What single pages of the documentation say is what there is."""

from __future__ import annotations

import importlib.util
import re
import tempfile
from pathlib import Path

import pytest

from exporters.backtest.rule_files import Judgement, RuleFile
from exporters.demo.location import PORT, empty_folder
from streaming.contracts import health
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import short_id
from streaming.contracts.state import PARTITION_STATE
from streaming.jobs.application import QUERIES
from streaming.settings import ClusterSettings, ExportSettings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SIZING = (DOCS / "sizing.md").read_text()
START = (DOCS / "getting-started.md").read_text()
MONITORING = (DOCS / "monitoring.md").read_text()


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
    figures = rows(SIZING.split("\n## Measured\n")[1].split("\n## ")[0])
    assert figures
    assert [row for row in figures if len(row) != 2 or not re.fullmatch(r"`[^`]+`", row[1])] == []


OF_ALL = ".venv/bin/python -m tests.benchmarks.NAME"
MEASURING = [
    *(command for command in re.findall(r"`(\.venv/bin/[^`]+)`", SIZING) if command != OF_ALL),
    *(OF_ALL.replace("NAME", row[1].strip("`")) for row in rows(SIZING.partition("\n## Measure your own\n")[2])),
]


@pytest.mark.parametrize("command", MEASURING)
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


def test_every_benchmark_that_the_sizing_names_exists_with_its_options() -> None:
    named = [row[1].strip("`").split() for row in rows(SIZING.split("\n## Measure your own")[1])]
    assert named
    for name, *words in named:
        source = (ROOT / "tests" / "benchmarks" / f"{name}.py").read_text()
        assert [word for word in words if word.startswith("--") and word not in source] == []


def test_the_sizing_has_figures_of_the_tables_in_the_words_of_the_command_that_gives_them() -> None:
    printed = (ROOT / "tests" / "benchmarks" / "year.py").read_text()
    (figure,) = (row[0] for row in rows(SIZING) if "tests.benchmarks.year --days 5" in row[1])
    for unit in ("MB a day", "MB for 1,000 changes", "kB for an incident"):
        assert unit in printed
        assert re.search(rf"\d {unit}", figure)


def test_the_start_says_to_end_the_demo_and_which_folder_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = empty_folder(None)
    (pattern,) = re.findall(r"`/tmp/(isrwatch-\S+)`", START)
    assert list(tmp_path.glob(pattern)) == [left]
    assert ExportSettings().listen.endswith(f":{PORT}")
    words = " ".join(START.split())
    assert words.index(f"End the demo first: its exporter has port {PORT}") < words.index("isrwatch run --bootstrap")


def test_the_start_shows_a_cause_and_a_short_id_as_they_are_printed() -> None:
    assert f"`{Cause.FENCED} ({Evidence.AMBIGUOUS}, or {Cause.LAG})`" in START
    assert f"\nisrwatch incidents {short_id(ClusterSettings().name, 1)} " in START


def test_the_page_of_monitoring_lists_the_shipped_alerts_that_the_past_can_judge() -> None:
    listed = re.search(r"Of the shipped alerts it\s+evaluates: (.*?)\.\n", MONITORING, re.DOTALL)
    assert listed is not None
    judged = Judgement([RuleFile.read(ROOT / "dashboards" / "generated" / "alerts.yml")]).alerts
    assert re.findall(r"`(\w+)`", listed[1]) == judged


def test_a_query_that_the_troubleshooting_names_is_one_of_the_job() -> None:
    trouble = (DOCS / "troubleshooting.md").read_text()
    (query,) = re.findall(r"^\| `the query (\w+) failed: Python worker failed to connect back`", trouble, re.MULTILINE)
    assert query in QUERIES


def test_the_page_of_strimzi_names_what_another_namespace_needs() -> None:
    (paragraph,) = [each for each in (DOCS / "strimzi.md").read_text().split("\n\n") if "`userSecret`" in each]
    assert {"`namespace`", "`KafkaUser`", "`caSecret`"} <= set(re.findall(r"`\w+`", paragraph))
