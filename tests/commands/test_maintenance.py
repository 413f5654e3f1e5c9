"""``isrwatch maintenance`` as a user runs it: from the bus and the command line to rows and state, without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from deltalake import DeltaTable
from typer.testing import CliRunner

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.commands import app
from streaming.contracts.codec import decode
from streaming.contracts.observations import Channel, ControllerObserved, MaintenanceObserved, SourceKind
from streaming.contracts.state import SourceLag
from streaming.delta.log.queries import read_all
from streaming.delta.progress import ProgressTable
from streaming.durations import duration_text
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.streams.bus_source import SCHEMA
from tests.changes.conftest import SECOND, Story

Run = Callable[..., Result]

PATIENCE = 60.0
WHY = ("--why", "new disk")


def watch(folder: Path, *, ahead: float = 0.0, cluster: str = "orders-eu", cluster_id: str = "cluster-1") -> Story:
    """A collector has reported a cluster of three brokers just now."""
    story = Story(f"metadata_log:{cluster_id}")
    story.now = time.time_ns() // 1_000 + int(ahead * SECOND)
    story.snapshot()
    publish(folder, story, cluster=cluster, cluster_id=cluster_id)
    return story


def publish(folder: Path, story: Story, **fields: str) -> None:
    publisher = DirectoryPublisher(folder / "bus", segment_bytes=1 << 20)
    publisher.publish([replace(item, **fields) for item in story.seen])
    publisher.close()
    story.seen = []


def frames(folder: Path) -> list[dict[str, Any]]:
    reader = DirectoryReader(folder / "bus")
    return [
        {"source": source, "position": item.position, "payload": item.payload, "damage": None}
        for source, end in reader.end_positions(Channel.REPLICATION).items()
        for item in reader.read(Channel.REPLICATION, source, 0, end)
    ]


def records(folder: Path) -> list[MaintenanceObserved]:
    seen = (decode(frame["payload"]) for frame in frames(folder))
    return [item for item in seen if isinstance(item, MaintenanceObserved)]


def apply(folder: Path) -> None:
    """What the job makes of the bus."""
    tables = folder / "tables"
    batch = ReplicationBatch(tables)
    batch.apply(pa.Table.from_pylist(frames(folder), schema=SCHEMA))
    batch.project()
    states, version = batch.sources()
    ProgressTable(tables, Channel.REPLICATION).replace([(state, SourceLag()) for state in states], version)


def leases(folder: Path, seconds: float, tail: float) -> tuple[str, str]:
    """The option that names a configuration of leases."""
    config = folder / "isrwatch.toml"
    config.write_text(
        f'[advanced]\nmaintenance_lease = "{duration_text(seconds)}"\nmaintenance_tail = "{duration_text(tail)}"\n'
    )
    return "--config", str(config)


def watch_and_apply(folder: Path, *, ahead: float = 0.0) -> Story:
    """A watched cluster whose brokers are safe to stop, in the tables."""
    story = watch(folder, ahead=ahead)
    story.config("1")
    publish(folder, story)
    apply(folder)
    return story


def lag_and_apply(folder: Path, story: Story) -> None:
    """Broker 3 is out of sync, so that neither of the others is safe to stop."""
    story.config("2")
    story.now = time.time_ns() // 1_000
    story.partition(isr=(1, 2), leader=1, partition_epoch=1)
    publish(folder, story)
    apply(folder)


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return read_all(DeltaTable(str(folder / "tables" / name))).to_pylist()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def invoke(*words: str) -> Result:
        where = ("--bus", str(tmp_path / "bus"), "--tables", str(tmp_path / "tables"))
        before, split, command = words, (), ()
        if "--" in words:
            at = words.index("--")
            before, split, command = words[:at], ("--",), words[at + 1 :]
        return CliRunner().invoke(app, ["maintenance", *where, *before, *split, *command], prog_name="isrwatch")

    return invoke


def sentence(result: Result, code: int = 2) -> str:
    assert result.exit_code == code, result.output
    assert result.output.count("\n") == 1, "one sentence"
    return result.output.strip()


def test_an_announcement_reaches_the_truth_the_events_and_the_state_of_the_broker(run: Run, tmp_path: Path) -> None:
    story = watch(tmp_path)
    result = run("--broker", "3", "--broker", "2", "--for", "30m", *WHY)
    assert (result.exit_code, "brokers 3, 2: planned work until" in result.output) == (0, True), result.output
    story.now = time.time_ns() // 1_000
    story.heartbeat()
    publish(tmp_path, story)
    apply(tmp_path)
    changed = [row for row in rows(tmp_path, "partition_changes") if row["events"] and row["subject"] == "broker"]
    assert sorted((row["broker"], row["events"][0]["event"]) for row in changed) == [
        (2, "maintenance_began"),
        (3, "maintenance_began"),
    ]
    events = [row for row in rows(tmp_path, "replication_events") if row["event"] == "maintenance_began"]
    assert sorted(row["event_broker"] for row in events) == [2, 3]
    assert events[0]["detail"].startswith("new disk; until ")
    state = {row["broker"]: row for row in rows(tmp_path, "broker_state")}
    assert (state[1]["maintenance_until"], state[3]["maintenance_why"]) == (None, "new disk")
    assert state[3]["maintenance_until"] - state[3]["maintenance_since"] == pytest.approx(1_800 * SECOND, abs=1_000)
    assert run().output.startswith("orders-eu  broker 2  until ")


def test_work_is_extended_and_ended_also_before_the_job_has_applied_it(run: Run, tmp_path: Path) -> None:
    watch(tmp_path)
    run("--broker", "3", "--for", "30m", *WHY)
    assert "let it last longer with --extend, or end it" in sentence(run("--broker", "3", "--for", "1h", *WHY))
    assert run("--broker", "3", "--for", "2h", "--extend").exit_code == 0
    assert run("--broker", "3", "--end").exit_code == 0
    first, extended, ended = records(tmp_path)
    assert {first.lease} == {extended.lease, ended.lease}
    assert extended.lease_until - first.lease_until > 5_000 * SECOND
    assert (ended.is_end, ended.why) == (True, "new disk")
    assert "nothing to change" in sentence(run("--broker", "3", "--end"))
    assert "no planned work is announced" in run().output


def test_a_command_runs_under_a_lease_that_is_renewed_and_ends_with_a_tail_and_passes_on_its_exit_code(
    run: Run, tmp_path: Path
) -> None:
    watch(tmp_path)
    slow = (sys.executable, "-c", "import time, sys; time.sleep(0.4); sys.exit(7)")
    result = run(*leases(tmp_path, 0.15, 5), "--broker", "3", "--why", "upgrade", "--", *slow)
    assert result.exit_code == 7, result.output
    began, *renewals, last = records(tmp_path)
    assert not began.is_renewal
    assert len(renewals) >= 2
    assert all(item.is_renewal and item.lease == began.lease for item in (*renewals, last))
    assert last.lease_until - last.occurred_not_after == pytest.approx(5 * SECOND, abs=1_000)
    times = [item.occurred_not_after for item in (began, *renewals, last)]
    assert times == sorted(times)


@pytest.mark.parametrize("is_applied", [False, True], ids=["on the bus", "in the tables"])
def test_work_begins_beside_a_lease_whose_command_has_ended_and_is_what_is_extended_then(
    run: Run, tmp_path: Path, *, is_applied: bool
) -> None:
    watch(tmp_path)
    assert run("--broker", "3", "--why", "first", "--", "true").exit_code == 0
    tail = records(tmp_path)[-1]
    if is_applied:
        apply(tmp_path)
    assert "first (the command has ended)" in run().output
    assert run("--broker", "3", "--why", "second", "--for", "30m").exit_code == 0
    second = records(tmp_path)[-1]
    assert second.lease != tail.lease
    assert "(second): let it last longer" in sentence(run("--broker", "3", "--for", "1h", *WHY))
    assert run("--broker", "3", "--for", "2h", "--extend").exit_code == 0
    (extended,) = records(tmp_path)[records(tmp_path).index(second) + 1 :]
    assert (extended.lease, extended.why) == (second.lease, "second")
    assert run("--broker", "3", "--end").exit_code == 0
    assert "no planned work is announced" in run().output


def test_a_lease_that_is_extended_in_its_tail_is_in_its_tail_no_more(run: Run, tmp_path: Path) -> None:
    watch(tmp_path)
    run("--broker", "3", "--why", "first", "--", "true")
    assert run("--broker", "3", "--for", "2h", "--extend").exit_code == 0
    assert "(first): let it last longer" in sentence(run("--broker", "3", "--for", "1h", *WHY))


def test_a_command_that_cannot_be_run_ends_its_lease_at_once(run: Run, tmp_path: Path) -> None:
    watch(tmp_path)
    result = run("--broker", "3", *WHY, "--", "no-such-command-anywhere")
    assert (result.exit_code, "cannot run no-such-command-anywhere" in result.output) == (127, True)
    began, ended = records(tmp_path)
    assert (began.is_end, ended.is_end, ended.lease) == (False, True, began.lease)


def started(tmp_path: Path, *command: str) -> subprocess.Popen[bytes]:
    options = ("--bus", str(tmp_path / "bus"), "--tables", str(tmp_path / "tables"), "--broker", "3", *WHY)
    program = (sys.executable, "-m", "streaming.commands", "maintenance", *leases(tmp_path, 0.6, 3))
    return subprocess.Popen([*program, *options, "--", *command])


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_lease_whose_holder_is_killed_is_not_renewed_any_more_and_lapses(tmp_path: Path) -> None:
    watch(tmp_path)
    holder = started(tmp_path, "sleep", "2")
    wait_for(lambda: len(records(tmp_path)) >= 2)
    holder.kill()
    holder.wait()
    seen = records(tmp_path)
    assert seen[-1].lease_until - seen[-1].occurred_not_after == pytest.approx(0.6 * SECOND, abs=1_000)
    time.sleep(0.5)  # two renewals and a half
    assert records(tmp_path) == seen


def test_sigterm_is_passed_on_to_the_command_and_the_lease_ends_with_its_tail(tmp_path: Path) -> None:
    watch(tmp_path)
    holder = started(tmp_path, "sleep", "60")
    wait_for(lambda: len(records(tmp_path)) >= 2)  # renewed: the command runs
    os.kill(holder.pid, signal.SIGTERM)
    assert holder.wait(PATIENCE) == 128 + signal.SIGTERM
    last = records(tmp_path)[-1]
    assert last.lease_until - last.occurred_not_after == pytest.approx(3 * SECOND, abs=1_000)


def test_a_lease_is_not_renewed_beyond_its_longest_time(run: Run, tmp_path: Path) -> None:
    watch(tmp_path)
    slow = (sys.executable, "-c", "import time; time.sleep(1.2)")
    result = run(*leases(tmp_path, 0.3, 60), "--broker", "3", *WHY, "--for", "1s", "--", *slow)
    assert "has reached its longest time" in result.output
    seen = records(tmp_path)
    assert max(item.lease_until for item in seen) - seen[0].occurred_not_after == pytest.approx(SECOND, abs=SECOND / 10)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--broker", "9", "--for", "30m", *WHY), "cluster orders-eu has no broker 9; its brokers are: 1, 2, 3"),
        (
            ("--broker", "3", "--for", "30m", *WHY, "--cluster", "x"),
            "there is no cluster x; the clusters are: orders-eu",
        ),
        (("--broker", "3", "--for", "13h", *WHY), "--for 13h is longer than maintenance.max_duration (12h)"),
        (("--broker", "3", "--for", "soon", *WHY), "--for is 'soon'; write a duration with its unit, such as \"30s\""),
        (("--broker", "3", "--for", "30m"), 'say why with --why, for example --why "new disk"'),
        (("--broker", "3", *WHY), "say how long it may take with --for"),
        (("--broker", "3", "--end"), "no planned work is announced for broker 3"),
        (("--broker", "3", "--for", "1h", "--extend"), "no planned work is announced for broker 3"),
        (("--for", "30m", *WHY), "name the brokers with --broker"),
    ],
)
def test_a_mistake_is_one_sentence_and_announces_nothing(
    run: Run, tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    watch(tmp_path)
    assert expected in sentence(run(*words))
    assert records(tmp_path) == []


def test_a_clock_that_is_behind_the_collectors_is_refused_and_one_that_may_be_ahead_is_warned_of(
    run: Run, tmp_path: Path
) -> None:
    watch(tmp_path, ahead=300)
    said = sentence(run("--broker", "3", "--for", "1h", *WHY))
    assert "s behind that of the collector of orders-eu: correct it" in said
    watch(tmp_path / "other", ahead=-300)
    result = run("--bus", str(tmp_path / "other" / "bus"), "--broker", "3", "--for", "1h", *WHY)
    assert (result.exit_code, "s old: nothing watches it" in result.output) == (0, True)


def test_of_several_clusters_one_must_be_named(run: Run, tmp_path: Path) -> None:
    watch(tmp_path)
    watch(tmp_path, cluster="orders-us", cluster_id="cluster-2")
    assert "there are several clusters" in sentence(run("--broker", "3", "--for", "1h", *WHY))
    assert run("--broker", "3", "--for", "1h", *WHY, "--cluster", "orders-us").exit_code == 0
    (record,) = records(tmp_path)
    assert (record.cluster_id, record.cluster) == ("cluster-2", "orders-us")


def test_without_any_cluster_the_sentence_says_what_to_start(run: Run) -> None:
    assert "start isrwatch collect first" in sentence(run("--broker", "3", "--for", "1h", *WHY))


def test_a_broker_that_is_not_safe_to_stop_is_warned_of_with_the_reason_and_announced_all_the_same(
    run: Run, tmp_path: Path
) -> None:
    story = watch(tmp_path)
    lag_and_apply(tmp_path, story)
    announced, warning = run("--broker", "2", "--for", "30m", *WHY).output.splitlines()
    assert "broker 2: planned work until" in announced
    assert "broker 2 is not safe to stop now: only after broker 3 has caught up" in warning
    assert len(records(tmp_path)) == 1
    assert "planned work until" in sentence(run("--broker", "2", "--for", "1h", "--extend"), code=0)
    marker = ("--", sys.executable, "-c", "print('the command runs')")
    assert "broker 1 is not safe to stop now" in run("--broker", "1", *WHY, *marker).output


def test_work_that_is_to_begin_only_if_it_is_safe_is_neither_announced_nor_run_otherwise(
    run: Run, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    marker = ("--", sys.executable, "-c", f"open({str(ran)!r}, 'w')")
    story = watch(tmp_path)
    said = sentence(run("--broker", "1", *WHY, "--if-safe", *marker), code=75)
    unknown = f"there are no tables in {tmp_path}/tables to say whether it is safe: nothing was announced or run"
    assert said.endswith(unknown)
    lag_and_apply(tmp_path, story)
    for words in (marker, ("--for", "30m")):
        said = sentence(run("--broker", "1", *WHY, "--if-safe", *words), code=75)
        assert "broker 1 is not safe to stop now: only after broker 3" in said
    assert (records(tmp_path), ran.exists()) == ([], False)
    assert "--if-safe is about work that begins" in sentence(run("--broker", "1", "--end", "--if-safe"))
    assert "name the brokers with --broker" in sentence(run("--if-safe"))


def test_work_that_is_to_begin_only_if_it_is_safe_begins_where_it_is(run: Run, tmp_path: Path) -> None:
    watch_and_apply(tmp_path)
    result = run("--broker", "2", *WHY, "--if-safe", "--", sys.executable, "-c", "raise SystemExit(7)")
    assert result.exit_code == 7, "what the command ends with; a refusal to run it is 75"


def test_work_that_is_to_begin_only_if_it_is_safe_does_not_begin_on_a_broker_that_the_tables_lack(
    run: Run, tmp_path: Path
) -> None:
    story = watch_and_apply(tmp_path)
    story.broker(broker=4)
    publish(tmp_path, story)
    said = sentence(run("--broker", "4", "--for", "30m", *WHY, "--if-safe"), code=75)
    assert "whether broker 4 can be stopped is unknown: the tables lack it" in said
    assert records(tmp_path) == []


@pytest.mark.parametrize(
    ("min_isr", "partitions", "lost"),
    [
        ("2", [{}, {}], "2 partitions would refuse writes with acks=all"),
        ("1", [{}, {"replicas": (1, 2), "isr": (1, 2)}], "1 partition would be offline"),
        ("1", [{}], "the controller quorum would lose its majority"),
        (
            "2",
            [{}, {"isr": (1, 2, 3, 4), "replicas": (1, 2, 3, 4)}],
            "1 partition would refuse writes with acks=all, the controller quorum would lose its majority",
        ),
    ],
)
def test_brokers_that_are_safe_one_by_one_are_warned_of_where_they_are_not_so_at_once(
    run: Run, tmp_path: Path, min_isr: str, partitions: list[dict[str, Any]], lost: str
) -> None:
    story = Story("metadata_log:cluster-1")
    story.now = time.time_ns() // 1_000
    story.config(min_isr)
    story.snapshot(partitions, brokers=(1, 2, 3, 4))
    publish(tmp_path, story)
    if "quorum" in lost:
        voters = {"controller": 1, "controller_epoch": 1, "voters": (1, 2, 3), "caught_up": (1, 2, 3)}
        story.source, story.source_kind, story.sequence = "quorum:a", SourceKind.NONE, 0
        story.add(ControllerObserved(**story.envelope(), **voters))
        publish(tmp_path, story)
    apply(tmp_path)
    assert "planned work until" in sentence(run("--broker", "1", "--for", "30m", *WHY), code=0)
    run("--broker", "1", "--end")
    _, warning = run("--broker", "2", "--broker", "1", "--for", "30m", *WHY).output.splitlines()
    assert warning.endswith(f"brokers 1, 2 are not safe to stop at once: {lost}")


def test_of_old_tables_it_is_unknown_whether_a_broker_can_be_stopped(run: Run, tmp_path: Path) -> None:
    story = watch_and_apply(tmp_path, ahead=-200)
    story.now = time.time_ns() // 1_000
    story.heartbeat()
    publish(tmp_path, story)  # the collector lives, the job does not
    _, warning = run("--broker", "2", "--for", "30m", *WHY).output.splitlines()
    assert "whether broker 2 can be stopped is unknown: the tables are 20" in warning


def test_advice_of_a_job_that_cannot_write_it_any_more_is_not_believed(run: Run, tmp_path: Path) -> None:
    watch_and_apply(tmp_path)
    progress = ProgressTable(tmp_path / "tables", Channel.REPLICATION)
    progress.replace([(state, SourceLag(is_query_up=False)) for state in progress.sources()], progress.as_of_version)
    said = sentence(run("--broker", "2", "--for", "30m", *WHY, "--if-safe"), code=75)
    assert "whether broker 2 can be stopped is unknown: the job does not write the tables of its state" in said
    assert records(tmp_path) == []


def test_a_damaged_table_does_not_keep_work_from_being_announced(run: Run, tmp_path: Path) -> None:
    watch_and_apply(tmp_path)
    for file in (tmp_path / "tables" / "source_progress").rglob("*.parquet"):
        file.unlink()
    announced, warning = run("--broker", "2", "--for", "30m", *WHY).output.splitlines()
    assert "broker 2: planned work until" in announced
    assert "whether broker 2 can be stopped is unknown: cannot read the table" in warning


class Watching(threading.Thread):
    """A collector and a job that run: each round a heartbeat, by which every session is over, and the tables."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.is_over = folder, threading.Event()
        self.story = watch_and_apply(folder)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.join()

    def run(self) -> None:
        while not self.is_over.wait(0.2):
            self.story.now = time.time_ns() // 1_000 + 10 * SECOND
            self.story.heartbeat()
            publish(self.folder, self.story)
            apply(self.folder)


def documented_restart() -> str:
    """The commands of the documentation that restart all brokers."""
    text = (Path(__file__).parents[2] / "docs" / "planned-work.md").read_text()
    return text.partition("## Restart all brokers")[2].split("```")[1]


@pytest.mark.parametrize(
    ("red", "upgraded"), [("0", ["1", "2", "3"]), ("2", ["1", "2"])], ids=["healthy", "red after broker 2"]
)
def test_the_documented_restart_of_all_brokers_works_as_it_stands_and_stops_at_the_first_red_gate(
    tmp_path: Path, red: str, upgraded: list[str]
) -> None:
    programs = {
        "upgrade": 'echo "$1" >> done',
        "isrwatch": f'[ "$1" = maintenance ] || exit "$(grep -c {red} done)"; shift; exec {sys.executable} '
        f'-m streaming.commands maintenance --bus {tmp_path}/bus --tables {tmp_path}/tables "$@"',
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(Path(__file__).parents[2])}
    with Watching(tmp_path):
        shell = ["bash", "-c", f"set -e\n{documented_restart()}"]
        ended = subprocess.run(shell, cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, check=False)
    assert ((tmp_path / "done").read_text().split(), ended.returncode) == (upgraded, 0), ended.stderr


def test_work_that_was_ended_a_moment_ago_is_not_against_the_next_broker(run: Run, tmp_path: Path) -> None:
    """The tables still have it when the next command begins: it waits until the job has applied the end."""
    watching = Watching(tmp_path)
    assert run("--broker", "1", "--for", "30m", *WHY).exit_code == 0
    apply(tmp_path)
    refused = run("--broker", "2", *WHY, "--if-safe", "--", "true")
    assert "planned work on broker 1 is announced" in sentence(refused, 75)
    assert "planned work ended, which the job applies within seconds" in run("--broker", "1", "--end").output
    with watching:
        result = run("--broker", "2", *WHY, "--if-safe", "--", "true")
    assert (result.exit_code, "waiting for 60 s at most: broker 2 is not safe" in result.output) == (0, True)


def test_work_that_somebody_else_announced_a_moment_ago_is_against_it_before_the_tables_have_it(
    run: Run, tmp_path: Path
) -> None:
    watching = Watching(tmp_path)
    assert run("--broker", "1", "--for", "30m", *WHY).exit_code == 0
    with watching:
        result = run("--broker", "2", *WHY, "--if-safe", "--", "true")
    waited, refused = result.output.splitlines()
    assert "the job has not applied yet what is announced of broker 1" in waited
    assert (result.exit_code, "planned work on broker 1 is announced" in refused) == (75, True)
