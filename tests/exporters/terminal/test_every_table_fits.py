"""Every table in terminals of usual widths: nothing is cut, and no line is wider than the terminal."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from exporters.answers.subjects import SUBJECTS
from exporters.terminal import output as output_module
from exporters.terminal import subject_commands
from streaming.commands import app
from streaming.terminal import Terminal
from tests.exporters.answers.asked import asked, printed
from tests.exporters.conftest import SECOND, Rows, Tables, put_samples

TABLES = (
    *(subject for subject in SUBJECTS if subject != "clusters"),
    *("state", "incidents --all", "events", "events --each", "tables", "tables partition_changes"),
)
TOPIC = "payments-settlement-of-the-european-warehouse"
AGE = re.compile(r"\d+\.\ds?|\d+m\d+s")
"""What differs between two runs."""


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster with long names, many brokers that are down or not safe to stop, and every kind of sample."""
    tables, rows = Tables(tmp_path_factory.mktemp("full") / "tables"), Rows()
    now = time.time_ns() // 1_000 - 5 * SECOND
    brokers = [rows.broker(number, now, is_fenced=number > 3) for number in range(1, 6)]
    moving = rows.state([1, 2, 3, 4, 5], [1], 1, adding_replicas=[4, 5], removing_replicas=[3])
    lost = {"before": rows.state([1, 2, 3], [1, 2, 3], 1), "left_isr": [2, 3], "cause": "controlled_shutdown",
            "evidence": "ambiguous", "candidates": ["controlled_shutdown", "preferred_election"]}  # fmt: skip
    events = [{"event_id": f"{number}", "event": kind} for number, kind in enumerate(("isr_shrink", "leader_change"))]
    tables.commit(
        rows.cluster_row(now), *brokers, rows.source(now),
        rows.partition(TOPIC, 11, {**moving, "last_cause": "preferred_election"}, now, **lost, events=events),
        rows.partition("__consumer_offsets", 49, rows.state([1, 2, 3], [1], 1), now),
    )  # fmt: skip
    put_samples(tables, rows)
    why = "2 partitions would go under min ISR: payments-settlement-eu-west-1-0, payments-settlement-eu-west-1-1"
    advice = {"restart_reason": why, "suspect_score": 0.75, "is_safe_to_stop": False, "would_go_under_min_isr": 12_345}
    tables.put(
        "broker_state",
        *({**rows.owner, "broker": number, **advice, "under_min_isr_partitions": 3} for number in range(1, 6)),
        as_of=1,
    )
    tables.put("incidents", incident(rows, now), as_of=1)
    return tables.directory


def incident(rows: Rows, now: int) -> dict[str, Any]:
    summary = f"broker 2 was lost: up to 28 partitions under-replicated (7.28 s in all), writers of {TOPIC} failed"
    return {
        **rows.incident("", "", now),
        "incident_id": "loss:EupwQpCTZDQ-oY376-NNVw/V8hnlLB30-9-DDe-QJzDCQ/0/3/isr_shrink",
        "short_id": f"{rows.cluster}-17",
        "incident_class": "controller_failover", "opened_at": now - 60 * SECOND, "updated_at": now, "summary": summary,
        "suspects": [{"broker": number, "score": 0.5} for number in range(101, 105)],
    }  # fmt: skip


def shown(tables: Path, command: str, width: int, row_format: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    file = io.StringIO()
    console = Terminal(file=file, width=width, force_terminal=True, color_system=None)
    for module in (output_module, subject_commands):
        monkeypatch.setattr(module, "Terminal", lambda **_: console)
    done = CliRunner().invoke(app, [*command.split(), "--tables", str(tables), "-o", row_format])
    assert done.exit_code == 0, done.output
    return file.getvalue().splitlines()


@pytest.mark.parametrize("command", TABLES)
def test_nothing_is_cut_nothing_is_too_wide_and_what_is_left_out_is_named(
    command: str, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = asked(full, command) if command in SUBJECTS else None

    def at(width: int) -> list[str]:
        if answer is None:
            return shown(full, command, width, "table", monkeypatch)
        return printed(command, answer, width=width, force_terminal=True).splitlines()

    whole = {word for line in at(500) for word in line.split()}
    assert len(whole) > 5, "it shows something"
    for width in (80, 100, 160):
        lines = at(width)
        assert [line for line in lines if "…" in line] == []
        words = {word for line in lines for word in line.split()}
        left_out = any(line.startswith("the terminal is too narrow for: ") for line in lines)
        assert left_out or [word for word in whole - words if not AGE.fullmatch(word)] == [], width
        if width > 80:  # names of partitions and of columns may need more
            assert max(map(len, lines)) <= width


def test_in_a_pipe_every_table_begins_with_its_heading(full: Path) -> None:
    for command, heading in (("incidents", "id"), ("state", "cluster"), ("brokers", "broker"), ("tables", "table")):
        done = CliRunner().invoke(app, [*command.split(), "--tables", str(full)])
        first = next(line for line in done.stdout.splitlines() if not line.startswith("STALE"))
        assert first.split("  ")[0] == heading


@pytest.mark.parametrize("command", ["health", "state", "partitions"])
def test_what_is_said_of_a_cluster_breaks_between_words(
    command: str, tables: Tables, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns() // 1_000
    topics = [f"orders-of-the-european-warehouse-{number}" for number in range(5)]
    tables.commit(
        rows.cluster_row(now), rows.source(now), rows.broker(1, now),
        *(rows.partition(topic, 0, rows.state([1, 2, 3], [1], 1), now) for topic in topics),
    )  # fmt: skip
    for name, value in (("COLUMNS", "100"), ("FORCE_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    coloured = CliRunner().invoke(app, [*command.split(), "--tables", str(tables.directory)]).stdout
    lines = re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines()
    assert max(map(len, lines)) <= 100
    assert [line for line in lines if line.startswith("offline")] == [], "it does not stand alone on a line"
