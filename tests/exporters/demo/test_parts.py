"""The stages of a demo's start; its parts live and die together, and nothing is left of them."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from exporters.demo.parts import Part, Parts, PartStopped
from exporters.demo.stages import StageFailed, StartStages, wait_until
from streaming.terminal import Terminal
from tests.plugins import local_http

PATIENCE = 60.0
wait_for = partial(local_http.wait_until, seconds=PATIENCE)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def start_script(parts: Parts, name: str, script: str) -> Part:
    """Start any Python in place of an isrwatch command, as a part of its own process group."""
    log = parts.logs / f"{name}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
    part = Part(name=name, process=process, log=log)
    parts.running.append(part)
    return part


def test_a_part_is_an_isrwatch_command_with_a_log_of_its_own(tmp_path: Path) -> None:
    with Parts(logs=tmp_path / "logs") as parts:
        part = parts.start("jars", "--help")
        wait_for(lambda: part.process.poll() is not None)
        assert part.process.returncode == 0
        assert "Usage: isrwatch jars" in part.log.read_text()


def test_a_part_that_ends_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    with Parts(logs=tmp_path / "logs") as parts:
        part = start_script(parts, "job", "for n in range(100): print('line', n)\nraise SystemExit(3)")
        wait_for(lambda: part.process.poll() is not None)
        with pytest.raises(PartStopped) as stopped:
            parts.check()
    assert str(stopped.value) == f"isrwatch job ended with exit code 3; the end of {part.log}:"
    assert stopped.value.log.splitlines() == [f"line {n}" for n in range(80, 100)]


def test_the_end_of_a_log_is_not_filled_with_frames_of_java(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    frames = "".join(f"\tat org.apache.spark.Frame{n}.run(Frame.scala:{n})\n" for n in range(100))
    log.write_text(f"Caused by: SocketTimeoutException\n{frames}\t... 23 more\nthe query failed\n")
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        part = Part(name="job", process=process, log=log)
        assert part.tail() == "Caused by: SocketTimeoutException\nthe query failed"


def test_stopping_is_polite_first(tmp_path: Path) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('closed', flush=True), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    with Parts(logs=tmp_path / "logs") as parts:
        part = start_script(parts, "job", script)
        wait_for(lambda: "ready" in part.log.read_text())
        parts.check()  # as long as all parts live nothing is said
    assert (part.process.returncode, part.log.read_text()) == (0, "ready\nclosed\n")


def test_what_refuses_to_stop_is_killed_with_all_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporters.demo.parts.GRACE_SECONDS", 0.5)
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with Parts(logs=tmp_path / "logs") as parts:
        part = start_script(parts, "job", script)
        wait_for(lambda: part.log.read_text().endswith("\n"))
    assert part.process.returncode == -signal.SIGKILL
    wait_for(lambda: not alive(int(part.log.read_text())))


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_killed_demo_leaves_no_part_behind(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time\n"
        "from exporters.demo.parts import Parts\n"
        "parts = Parts(logs=pathlib.Path(sys.argv[1])).__enter__()\n"
        "print(parts.start('hang').process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    # A command of the table that would run for ever, in an interpreter that knows it.
    site = tmp_path / "sitecustomize.py"
    site.write_text(
        "import sys, types, time\n"
        "from streaming.commands import COMMANDS, Command, Purpose\n"
        "COMMANDS['hang'] = Command(target='hang:hang', help='', purpose=Purpose.LEARN, extra='all')\n"
        "hang = types.ModuleType('hang')\n"
        "def run():\n    print('hanging', flush=True)\n    time.sleep(600)\n"
        "hang.hang = run\n"
        "sys.modules['hang'] = hang\n"
    )
    demo = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "logs")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert demo.stdout is not None
    pid = int(demo.stdout.readline())
    wait_for(lambda: "hanging" in (tmp_path / "logs" / "hang.log").read_text())
    demo.kill()
    demo.wait(PATIENCE)
    wait_for(lambda: not alive(pid))


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def stages(output: io.StringIO) -> StartStages:
    return StartStages(Terminal(file=output, width=60))


def test_in_a_pipe_a_stage_is_one_line_with_its_seconds(stages: StartStages, output: io.StringIO) -> None:
    with stages.stage("finding Java") as stage:
        stage.label = "Java 17 (PATH)"
    with stages.stage("Spark"):
        pass
    assert re.fullmatch(r"✓ Java 17 \(PATH\)  \d+\.\d s\n✓ Spark  \d+\.\d s\n", output.getvalue())


def test_a_stage_that_fails_gets_no_tick(stages: StartStages, output: io.StringIO) -> None:
    with pytest.raises(StageFailed), stages.stage("Spark"):
        raise StageFailed("not ready")
    assert output.getvalue() == ""


def test_waiting_ends_when_it_is_ready(tmp_path: Path) -> None:
    answers = iter([False, False, True])
    with Parts(logs=tmp_path) as parts:
        wait_until(lambda: next(answers), "Spark", parts, 60)
    assert list(answers) == []


def test_waiting_has_an_end(tmp_path: Path) -> None:
    with Parts(logs=tmp_path) as parts, pytest.raises(StageFailed, match=f"Spark was not ready.*logs in {tmp_path}"):
        wait_until(lambda: False, "Spark", parts, 0.01)


def test_nobody_waits_for_what_has_died(tmp_path: Path) -> None:
    with Parts(logs=tmp_path) as parts:
        start_script(parts, "job", "print('no memory'); raise SystemExit(3)")
        with pytest.raises(PartStopped, match="isrwatch job ended with exit code 3") as stopped:
            wait_until(lambda: False, "the first batch", parts, 60)
    assert stopped.value.log == "no memory"
