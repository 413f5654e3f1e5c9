"""``isrwatch events`` on a terminal, in a pipe and for programs."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from exporters.read_model.event_filter import EventFilter
from exporters.read_model.recorded_events import COLUMNS, history
from exporters.read_model.times import Clock
from streaming.commands import app
from tests.plugins.played import SECOND, START

SOON = 1.0


@pytest.fixture(scope="module")
def tables(played_tables: Callable[..., Path]) -> Path:
    return played_tables("under_min_isr", "broker_loss")


def events(tables: Path, *options: str) -> str:
    done = CliRunner().invoke(app, ["events", "--tables", str(tables), *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_pipe_gets_one_plain_line_per_event_and_what_happened_at_once_is_said_once(tables: Path) -> None:
    chosen = ("--cluster", "broker_loss", "--event", "isr_shrink")
    assert len(events(tables, *chosen).splitlines()) * 4 < len(events(tables, *chosen, "--each").splitlines())
    assert events(tables, *chosen, "--each", "--limit", "2").splitlines() == [
        "2023-11-14T22:14:10.750Z  broker_loss  payments-13  isr_shrink  broker 2 left (ISR 3, 4)  fenced (proven)",
        "2023-11-14T22:14:10.750Z  broker_loss  scratch-1  isr_shrink  broker 2 left (ISR empty)  fenced (proven)",
    ]


def test_json_has_an_object_per_line_with_every_column_and_times_with_a_zone(tables: Path) -> None:
    rows = json.loads(events(tables, "-o", "json", "--limit", "0"))["rows"]
    assert len(rows) == len(list(history(tables, EventFilter())))
    assert {tuple(row) for row in rows} == {COLUMNS}
    assert {row["occurred_not_after"][-1] for row in rows} == {"Z"}


def test_csv_has_the_same_columns(tables: Path) -> None:
    lines = list(csv.reader(io.StringIO(events(tables, "-o", "csv", "--event", "isr_shrink", "--limit", "2"))))
    assert lines[0] == list(COLUMNS)
    assert [len(row) for row in lines] == [len(COLUMNS)] * 3
    assert all(left.isdecimal() for left in (row[lines[0].index("left_isr")] for row in lines[1:]))


def test_relative_and_absolute_times_limit_the_events(tables: Path) -> None:
    clock = Clock(START)
    since, until = clock.iso(START + 10 * SECOND), clock.iso(START + 30 * SECOND)
    lines = events(tables, "--since", since, "--until", until, "--limit", "0").splitlines()
    assert lines
    assert all(since <= line.split()[0] <= until for line in lines)
    assert events(tables, "--since", "1h") == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--since", "soon"], "cannot read the time 'soon'; write for example 15m, 2h"),
        (["--follow", "--as-of", "3"], "--follow shows new events and --as-of ends in the past"),
        (["--tables", "/nowhere"], "no tables in /nowhere; start isrwatch job, or point tables.directory"),
    ],
)
def test_a_mistake_is_one_sentence(tables: Path, options: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, ["events", "--tables", str(tables), *options])
    assert (done.exit_code, sentence in done.stderr) == (2, True)


def test_a_follower_prints_an_event_within_a_second_of_its_commit_and_ends_with_ctrl_c(
    tables: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "tables"
    shutil.copytree(tables, copy)
    log = copy / "partition_changes" / "_delta_log"
    newest = max(log.glob("*.json"))
    shutil.move(newest, tmp_path / newest.name)
    shutil.rmtree(copy / "replication_events")
    # Whoever runs the tests in the background may have had SIGINT ignored, which a child inherits.
    default_handler = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", f"{default_handler}from streaming.commands import main; main()"]
    command += ["events", "--follow", "--limit", "1", "--tables", str(copy)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        try:
            assert follower.stdout is not None
            assert follower.stdout.readline()
            shutil.move(tmp_path / newest.name, newest)
            began = time.monotonic()
            assert follower.stdout.readline()
            taken = time.monotonic() - began
            follower.send_signal(signal.SIGINT)
            _, errors = follower.communicate(timeout=30)
        finally:
            follower.kill()
    assert (follower.returncode, errors) == (0, "")
    assert taken < SOON


def test_of_a_topic_without_events_a_terminal_says_that_none_matches_and_a_pipe_stays_empty(tables: Path) -> None:
    shown = events(tables, "--topic", "odrers", "-o", "table").splitlines()
    assert shown[-1] == "no recorded event matches"
    assert events(tables, "--topic", "odrers") == ""


def test_a_reader_that_goes_away_ends_it_in_silence(tables: Path) -> None:
    command = f"{sys.executable} -m streaming.commands events --limit 0 -o json --tables {tables} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def test_by_moment_every_event_is_in_one_row_and_far_fewer_rows_say_it(tables: Path) -> None:
    rows = json.loads(events(tables, "--by-moment", "--limit", "0", "-o", "json"))["rows"]
    each = json.loads(events(tables, "--limit", "0", "-o", "json"))["rows"]
    assert sum(row["events"] for row in rows) == len(each)
    assert len(rows) * 4 < len(each)
    moments = [row["occurred_not_after"] for row in rows]
    assert moments == sorted(moments)
    assert {row["cause"] for row in rows} == {event["cause"] for event in each}
    lost = max(rows, key=lambda row: len(row["partitions"]))
    assert re.match(r"brokers? [\d, ]+ (left|joined) the ISR", lost["what"])
    assert (lost["subject"], len(lost["partitions"]) > 10) == (f"{len(lost['partitions'])} partitions", True)
    assert lost["partitions"][:3] == lost["what"].partition("(")[2].removesuffix(" ...)").split()


def test_by_moment_the_newest_rows_are_whole_however_few_are_asked_for(tables: Path) -> None:
    everything = events(tables, "--by-moment", "--limit", "0", "-o", "csv").splitlines()
    for limit in (1, 2, 5, 1_000):
        newest = events(tables, "--by-moment", "--limit", str(limit), "-o", "csv").splitlines()
        assert newest == [everything[0], *everything[1:][-limit:]]


def test_by_moment_a_pipe_gets_a_line_and_a_terminal_a_table(tables: Path) -> None:
    options = ("--by-moment", "--cause", "expand", "--cluster", "broker_loss")
    lines = [line.split("  ") for line in events(tables, *options).splitlines()]
    time_text, cluster, _, what, why = next(line for line in lines if line[2].endswith(" partitions"))
    assert (time_text[-1], cluster, why) == ("Z", "broker_loss", "expand (proven)")
    assert re.match(r"brokers? [\d, ]+ joined the ISR", what)
    heading, *_ = events(tables, *options, "-o", "table").splitlines()
    assert heading.split() == ["time", "(UTC)", "subject", "what", "cause"], "of one cluster no column for its name"
