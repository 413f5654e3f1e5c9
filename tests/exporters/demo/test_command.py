"""The whole demo, as a user starts it: it flows, it ends, and it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from exporters.demo.command import scenarios
from exporters.demo.live import DemoProgress, newest
from exporters.read_model.reader import TablesReader
from streaming.commands import app

PATIENCE = 300.0
RUNNER = CliRunner()


class RunningDemo:
    """A demo in a pipe, with its output in a file."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.directory = folder / "state"
        self.output = folder / "output.txt"
        with self.output.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streaming.commands", "demo", "--directory", str(self.directory), *options],
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    def text(self) -> str:
        return self.output.read_text()

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, f"{what} did not come:\n{self.text()}"
            time.sleep(0.1)

    def wait_for(self, words: str) -> None:
        self.wait_until(lambda: words in self.text(), repr(words))

    def wait_for_heartbeats(self) -> None:
        """Heartbeats are all that a cluster without changes sends."""
        reader = TablesReader(self.directory / "tables")
        progress, deadline = DemoProgress(newest(reader)), time.monotonic() + PATIENCE
        while not progress.moved():
            assert time.monotonic() < deadline, "no heartbeat arrived"
            time.sleep(0.2)
            progress.update(newest(reader), 0)
        time.sleep(1)  # the demo's own look at the tables comes every quarter of a second

    def left(self) -> list[str]:
        """Command lines of processes that work in the demo's folder."""
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_text().replace("\0", " ")
            except OSError:
                continue
            if str(self.directory) in line:
                lines.append(line)
        return lines

    def part(self, name: str) -> int:
        """Process id of a part."""
        (pid,) = (
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if f"exporters.running.attached\0{name}\0" in path.read_text() and str(self.directory) in path.read_text()
        )
        return pid


@pytest.fixture
def run_demo(tmp_path: Path) -> Iterator[Callable[..., RunningDemo]]:
    demos: list[RunningDemo] = []

    def start(*options: str) -> RunningDemo:
        demos.append(RunningDemo(tmp_path, *options))
        return demos[-1]

    yield start
    for demo in demos:
        demo.process.kill()
        demo.process.wait(PATIENCE)


EVENT = re.compile(
    r"^[\d:.]{12}  (\d+ partitions|\w+-\d+)  broker [23] left the ISR.*\((proven|ambiguous)", re.MULTILINE
)


def has_event(text: str) -> bool:
    """Whether it shows that a broker left an ISR, with the cause."""
    return EVENT.search(text.replace("\n    ", " ")) is not None


def check_whole(demo: RunningDemo) -> None:
    """Check what is left of a demo in which there were events: a summary, the tables, and no process."""
    text = demo.text()
    stages = re.findall(r"^✓ (\w+)", text, re.MULTILINE)
    assert stages == ["Java", "simulated", "Spark", "first", "exporter"]
    assert has_event(text), text
    recorded = re.search(r"^([\d,]+) events recorded on 50 partitions", text, re.MULTILINE)
    assert recorded, text
    assert int(recorded[1].replace(",", "")) > 0
    assert f"tables: {demo.directory}/tables" in text
    assert demo.left() == []


@pytest.mark.spark
def test_a_demo_shows_events_with_their_cause_and_ctrl_c_ends_it_with_a_summary(
    run_demo: Callable[..., RunningDemo],
) -> None:
    demo = run_demo("--scenario", "broker_loss", "--speed", "20")
    demo.wait_until(lambda: has_event(demo.text()), "an event")
    began = time.monotonic()
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(PATIENCE) == 0, demo.text()
    assert time.monotonic() - began < 30
    check_whole(demo)


@pytest.mark.spark
@pytest.mark.long
def test_a_demo_ends_by_itself(run_demo: Callable[..., RunningDemo]) -> None:
    demo = run_demo("--for", "20s", "--scenario", "broker_loss", "--speed", "4")
    assert demo.process.wait(PATIENCE) == 0, demo.text()
    check_whole(demo)


@pytest.mark.spark
@pytest.mark.long
def test_without_changes_heartbeats_make_a_demo_complete(run_demo: Callable[..., RunningDemo]) -> None:
    demo = run_demo("--scenario", "steady")
    demo.wait_for("isrwatch demo  scenario steady")
    demo.wait_for_heartbeats()
    demo.process.send_signal(signal.SIGINT)
    code = demo.process.wait(PATIENCE)
    assert (code, "events recorded on 24 partitions" in demo.text()) == (0, True), demo.text()
    assert demo.left() == []


@pytest.mark.spark
def test_a_polite_kill_while_it_starts_leaves_nothing_behind(run_demo: Callable[..., RunningDemo]) -> None:
    demo = run_demo()
    demo.wait_for("✓ simulated Kafka cluster")
    demo.process.terminate()
    assert demo.process.wait(PATIENCE) == 130
    assert "stopped; nothing is left running" in demo.text()
    assert demo.left() == []


@pytest.mark.spark
@pytest.mark.long
def test_a_part_that_dies_is_named_and_ends_the_demo(run_demo: Callable[..., RunningDemo]) -> None:
    demo = run_demo()
    demo.wait_for("✓ simulated Kafka cluster")
    os.kill(demo.part("collect"), signal.SIGKILL)
    assert demo.process.wait(PATIENCE) == 1
    assert "isrwatch collect was ended by signal 9; below is what it printed last" in demo.text()
    assert f"all of it is in {demo.directory}/logs" in demo.text()
    assert demo.left() == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--scenario", "doom"], "there is no scenario doom; use one of"),
        (["--directory", str(Path(__file__).parent)], "is not empty; name a new folder, or delete this one"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(arguments: list[str], sentence: str) -> None:
    result = RUNNER.invoke(app, ["demo", *arguments])
    assert (result.exit_code, sentence in result.stderr, result.stdout) == (2, True, "")


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = RUNNER.invoke(app, ["demo", "--directory", str(tmp_path), "--port", str(port)])
    assert (result.exit_code, result.stderr) == (2, f"--port {port} is taken on 127.0.0.1; choose another one\n")


def test_help_names_every_scenario() -> None:
    text = " ".join(RUNNER.invoke(app, ["demo", "--help"], env={"COLUMNS": "200"}).stdout.split())
    assert scenarios() == sorted(scenarios())
    assert all(name in text for name in scenarios())
