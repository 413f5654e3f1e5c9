"""``isrwatch health``: its exit code, its words, its JSON, and the gate of --wait."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from exporters.read_model.cluster_health import ClusterHealth, HealthAnswer, HealthStatus
from exporters.read_model.health_reasons import SUMMARIES
from exporters.read_model.reader import micros_now
from exporters.read_model.times import Clock
from exporters.terminal.health_gate import Look, WaitLimits
from exporters.web.server import serving
from streaming.commands import app
from streaming.contracts.conditions import Condition
from streaming.settings import ExportSettings
from tests.exporters.conftest import Rows, Tables
from tests.plugins.local_http import wait_until

SECOND = 1_000_000


def ran(tables: Any, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["health", "--tables", str(tables.directory), *options])
    return done.exit_code, done.output


def commit(tables: Any, rows: Any, isr: list[int], at: int | None = None) -> None:
    """A cluster of one partition, observed at a moment."""
    now = micros_now() if at is None else at
    tables.commit(
        rows.cluster_row(now),
        *(rows.broker(number, now, maintenance_since=None, maintenance_until=None) for number in (1, 2)),
        rows.partition("orders", 0, rows.state([1, 2], isr, 1, min_isr=1, under_replicated_since=now), now),
        rows.source(now),
    )


def test_an_unhealthy_cluster_is_exit_code_1_with_every_reason(tables: Any, rows: Any) -> None:
    commit(tables, rows, [1])
    code, output = ran(tables)
    lines = output.splitlines()
    assert (code, lines[0].partition(",")[0]) == (1, "unhealthy: cluster main")
    assert lines[1] == (
        "  warning: under_replicated 1 for 0.0s: partitions have fewer replicas in sync than assigned: orders-0"
    )
    assert "at_min_isr" in lines[2]
    code, output = ran(tables, "--ignore", "under_replicated", "--ignore", "at_min_isr")
    assert (code, "warning, not counted: under_replicated" in output) == (0, True)


def test_stale_data_is_exit_code_3_whatever_it_says_unless_old_data_is_allowed(tables: Any, rows: Any) -> None:
    for isr, code in (([1, 2], 0), ([1], 1)):
        commit(tables, rows, isr, micros_now() - 90 * SECOND)
        assert ran(tables)[0] == 3
        assert ran(tables)[1].splitlines()[1] == f"  unknown: data_stale 1: {SUMMARIES[Condition.DATA_STALE]}: main"
        assert ran(tables, "--max-age", "5m")[0] == code


def test_what_announced_work_explains_counts_unless_it_is_allowed(tables: Any, rows: Any) -> None:
    now = micros_now()
    until = now + 60 * SECOND
    work = {"maintenance_since": now, "maintenance_until": until, "maintenance_why": "disk"}
    commit(tables, rows, [1])
    tables.commit(rows.broker(2, now, **work), rows.source(now))
    assert ran(tables)[0] == 1
    code, output = ran(tables, "--allow-planned")
    assert (code, "planned, not counted: planned_work 1" in output) == (0, True)


def test_the_answer_as_json_has_every_reason_and_what_is_missing(tables: Any, rows: Any) -> None:
    commit(tables, rows, [1])
    code, output = ran(tables, "-o", "json")
    answer = json.loads(output)
    (cluster,) = answer["clusters"]
    assert (code, answer["status"], cluster["status"], answer["unreadable_tables"]) == (1, "unhealthy", "unhealthy", {})
    assert cluster["observed_until"].endswith("Z")
    assert {each["since"] for each in cluster["reasons"]} == {cluster["observed_until"]}, "times are as of all commands"
    assert [(each["condition"], each["examples"], each["more"], each["counts"]) for each in cluster["reasons"]] == [
        ("under_replicated", ["orders-0"], 0, True),
        ("at_min_isr", ["orders-0"], 0, True),
    ]


def test_tables_that_cannot_be_read_leave_it_unknown(tables: Any, rows: Any) -> None:
    commit(tables, rows, [1, 2])
    log = tables.directory / "partition_changes" / "_delta_log"
    (log / f"{2:020}.json").write_text("{ not a commit", encoding="utf-8")
    code, output = ran(tables)
    assert (code, output.startswith("unknown: ")) == (3, True)
    assert "partition_changes" in output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--cluster", "nobody"], "unknown cluster nobody; known: main"),
        (["--max-age", "0s"], "--max-age is '0s'; use a duration from 1ms to 24000d"),
        (["--max-age", "99999999999d"], "--max-age is '99999999999d'; use a duration from 1ms to 24000d"),
        (["--max-age", "soon"], "--max-age is 'soon'; write a duration with its unit"),
        (["--wait", "5m ago"], "--wait is '5m ago'; write a duration with its unit"),
        (["--ignore", "data_stale"], "data_stale cannot be ignored: without data nothing is healthy"),
        (["--ignore", "restart_loop"], "--ignore restart_loop is no condition of health"),
        (["--wait", "5s"], "--settle is longer than --wait: it could never pass"),
    ],
)
def test_a_wrong_option_is_exit_code_2(tables: Any, rows: Any, options: list[str], sentence: str) -> None:
    commit(tables, rows, [1, 2])
    code, output = ran(tables, *options)
    assert (code, sentence in output) == (2, True)


def test_without_tables_it_is_a_wrong_configuration_and_with_wait_unknown(tables: Any) -> None:
    assert ran(tables)[0] == 2
    code, output = ran(tables, "--wait", "0.2s", "--settle", "0s")
    assert (code, "unknown: no cluster has been observed" in output) == (3, True)


def test_the_gate_does_not_pass_on_data_from_before_its_start(tables: Any, rows: Any) -> None:
    commit(tables, rows, [1, 2])
    code, output = ran(tables, "--wait", "1.5s", "--settle", "0s")
    assert (code, "not_yet_observed" in output) == (3, True)


def test_the_gate_passes_once_newer_data_are_healthy_and_settled(tables: Any, rows: Any) -> None:
    commit(tables, rows, [1])
    stopped = threading.Event()

    def observe() -> None:
        began = time.monotonic()
        while not stopped.wait(0.3):
            commit(tables, rows, [1, 2] if time.monotonic() - began > 1.5 else [1])

    observer = threading.Thread(target=observe)
    began = time.monotonic()
    observer.start()
    try:
        code, output = ran(tables, "--wait", "60s", "--settle", "2s", "--ignore", "at_min_isr")
    finally:
        stopped.set()
        observer.join()
    assert (code, output.splitlines()[-1].partition(",")[0]) == (0, "healthy: cluster main")
    assert "under_replicated of main" in output
    assert "at_min_isr of main" not in output, "what does not count is not waited for"
    assert "healthy, to settle" in output
    assert time.monotonic() - began > 3.5


class Scripted:
    """A cluster that shows one status after the other, a second apart; its data age with it unless they stand still."""

    def __init__(self, *statuses: str, is_standing: bool = False) -> None:
        self.time = 0.0
        self._statuses = statuses
        self._is_standing = is_standing

    def look(self) -> Look:
        status = HealthStatus(self._statuses[min(int(self.time), len(self._statuses) - 1)])
        until = 0 if self._is_standing else int(self.time * SECOND)
        return Look(HealthAnswer(status, (ClusterHealth("id", "main", status, until, 0.0, ()),)))

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def waited(self, seconds: float, settle: float) -> tuple[str, float]:
        waiting = WaitLimits(seconds=seconds, settle_seconds=settle, clock=lambda: self.time, sleep=self.sleep)
        return waiting.until_healthy(self.look, lambda *_: None).status.value, self.time


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (Scripted("healthy"), ("healthy", 3.0)),
        (Scripted("unhealthy", "unknown", "healthy"), ("healthy", 5.0)),
        (Scripted("healthy", "healthy", "unhealthy", "healthy"), ("healthy", 6.0)),
        (Scripted("healthy", "healthy", "unknown", "healthy"), ("healthy", 6.0)),
        (Scripted(*["healthy", "unhealthy"] * 20), ("unknown", 10.0)),
        (Scripted("unhealthy"), ("unhealthy", 10.0)),
        (Scripted("healthy", is_standing=True), ("unknown", 10.0)),
    ],
)
def test_health_must_last_for_the_time_to_settle_by_the_time_of_the_data(
    cluster: Scripted, expected: tuple[str, float]
) -> None:
    assert cluster.waited(10.0, 3.0) == expected


def test_an_interrupted_gate_has_not_passed(tables: Any, rows: Any, tmp_path: Path) -> None:
    commit(tables, rows, [1, 2])
    command = [sys.executable, "-m", "streaming.commands", "health", "--tables", str(tables.directory), "--wait", "60s"]
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        gate = subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: "waiting for" in errors.read_text())
        finally:
            os.kill(gate.pid, signal.SIGINT)
        assert gate.wait(timeout=60) == 130
    assert "Traceback" not in errors.read_text()


# At a moment of the past, from the tables and from a server.

WITHOUT = "no_controller and primary_source_lost have no history and are left out"
REFUSED = {
    ("--as-of", "2h"): "nothing is recorded of",
    ("--as-of", "2126-01-01T00:00Z"): "nothing is recorded of 2126-01-01T00:00:00.000Z: give a moment from",
    ("--as-of", "soon"): "cannot read the time 'soon'",
    ("--as-of", ""): "cannot read the time ''",
    ("--as-of", "12"): "--as-of is '12': health is that of a time, not of a version",
    ("--as-of", "10s", "--wait", "1m"): "--wait waits for what comes, and --as-of judges the past",
}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, tuple[tuple[str, str], ...]]]:
    """A cluster that lacked a replica for a while and was renamed, one that came later; when, and who can be asked."""
    tables, now = Tables(tmp_path_factory.mktemp("night") / "tables"), micros_now() // SECOND * SECOND
    for seconds, isr, name in ((60, [1, 2], "old"), (30, [1], "old"), (10, [1, 2], "new")):
        commit(tables, Rows(cluster=name), isr, now - seconds * SECOND)
    commit(tables, Rows(cluster_id="id-of-late", cluster="late"), [1, 2], now - 5 * SECOND)
    states = (Rows(cluster="new").cluster_row(now), Rows(cluster_id="id-of-late", cluster="late").cluster_row(now))
    tables.put("cluster_state", *({**Rows().owner, **each, **each["cluster_after"]} for each in states), as_of=3)
    with serving(tables.directory, ExportSettings(listen="127.0.0.1:0", refresh_interval=0.02)) as address:
        source = ("--server", f"http://{address}")
        wait_until(lambda: asked(source, "--cluster", "new", "--cluster", "late")[0] == 0)
        yield now, (("--tables", str(tables.directory)), source)


def asked(source: tuple[str, str], *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["health", *source, *options])
    return done.exit_code, done.output


def iso(at: int) -> str:
    return Clock(at).iso(at)


def test_health_as_of_a_moment_is_that_of_the_moment_from_tables_and_from_a_server(night: Any) -> None:
    now, sources = night
    for source in sources:
        for seconds, expected in ((45, 0), (20, 1), (7, 0)):
            code, output = asked(source, "--as-of", iso(now - seconds * SECOND))
            assert (code, output.splitlines()[0]) == (expected, f"as of {iso(now - seconds * SECOND)}; {WITHOUT}")
        code, output = asked(source, "--as-of", iso(now - 20 * SECOND), "-o", "json")
        answer = json.loads(output)
        assert (code, answer["status"], answer["as_of"]) == (1, "unhealthy", iso(now - 20 * SECOND))
        code, output = asked(source, "--as-of", iso(now - 20 * SECOND))
        assert output.splitlines()[1] == "unhealthy: cluster old, observed 0.0s earlier"
        naive = iso(now - 20 * SECOND).removesuffix("Z")
        assert asked(source, "--as-of", naive)[0] == 1, "a time without a zone is UTC"
    (tables, server) = [asked(each, "--as-of", iso(now - 20 * SECOND), "-o", "json") for each in sources]
    assert tables == server


def test_a_cluster_of_the_past_is_chosen_by_either_name_and_one_that_came_later_is_unknown(night: Any) -> None:
    now, sources = night
    for source in sources:
        at = ("--as-of", iso(now - 20 * SECOND))
        for name in ("old", "new", "id-of-main", "n*"):
            code, output = asked(source, *at, "--cluster", name)
            assert (code, output.splitlines()[1].partition(",")[0]) == (1, "unhealthy: cluster old"), name
        code, output = asked(source, *at, "--cluster", "late")
        assert (code, output.splitlines()[1]) == (3, "unknown: cluster late"), source
        assert "its primary source has reported nothing yet" in output
        code, output = asked(source, *at, "--cluster", "new", "--cluster", "late", "--ignore", "under_replicated")
        assert (code, "unknown: cluster late" in output) == (1, True)
        code, output = asked(source, "--as-of", iso(now - 45 * SECOND), "--cluster", "new", "--cluster", "late")
        assert (code, "healthy: cluster old" in output) == (3, True), "one that was not observed is not healthy"
        code, output = asked(source, *at, "--cluster", "nobody")
        assert (code, "unknown cluster nobody; known: " in output) == (2, True)


def test_a_moment_that_cannot_be_judged_is_exit_code_2(night: Any) -> None:
    for source, (options, sentence) in product(night[1], REFUSED.items()):
        code, output = asked(source, *options)
        assert (code, sentence in " ".join(output.split())) == (2, True), output


def test_a_time_of_this_zone_is_judged_with_local(night: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now, sources = night
    invoke = CliRunner().invoke
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        local = Clock(now, local=True).iso(now - 20 * SECOND)
        for source in sources:
            code, output = asked(source, "--as-of", local[:23], "--local")
            assert (code, output.splitlines()[0].partition(";")[0]) == (1, f"as of {local}")
            assert asked(source, "--as-of", local)[0] == 1, "with its zone it needs no option"
            for command in ("events", "incidents", "brokers"):
                assert invoke(app, [command, *source, "--as-of", local[:23], "--local"]).exit_code == 0, command
                assert invoke(app, [command, *source, "--as-of", local[:23]]).exit_code == 2, "UTC: not recorded yet"
    finally:
        monkeypatch.undo()
        time.tzset()
