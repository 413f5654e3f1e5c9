"""A real job of which a part is stopped: its health says so within two minutes, and that it is well again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.plugins.local_http import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.plugins.pipeline import Pipeline

pytest_plugins = ("tests.plugins.pipeline",)
pytestmark = [pytest.mark.spark, pytest.mark.long]
SECONDS = 120.0


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def until(condition: Callable[[], bool], seconds: float = SECONDS) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds
        time.sleep(1)  # between two questions
    return time.monotonic() - began


def below(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(each) for each in listed.stdout.split()]


def runners(jvm: int) -> list[int]:
    """The processes in which Spark plans the reading of the bus."""
    name = "python_streaming_source_runner"
    return [pid for pid in below(jvm) if name in Path(f"/proc/{pid}/cmdline").read_text()]


@pytest.mark.parametrize("part", ["the runners of its sources", "its JVM"])
def test_a_job_of_which_a_part_hangs_is_unhealthy_and_then_healthy_again(pipeline: Pipeline, part: str) -> None:
    port = free_port()
    pipeline.collect("--simulate", "steady")
    job = pipeline.start("job", "job", *pipeline.job_arguments(), "--listen", f"127.0.0.1:{port}")
    pipeline.eventually(lambda: "running" in job.text(), "the job runs", job)
    until(lambda: answer(port, "/-/ready")[0] == 200)
    stopped = [job.jvm()] if part == "its JVM" else runners(job.jvm())
    assert stopped
    time.sleep(20)  # it moves for a while
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        took = until(lambda: answer(port, "/-/healthy")[0] == 503)
        assert took > 50
        text = answer(port, "/-/healthy")[1]
        assert "the query replication hangs: " in text
        assert "the log replication/" in answer(port, "/-/ready")[1]
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    until(lambda: answer(port, "/-/healthy")[0] == answer(port, "/-/ready")[0] == 200)
    assert job.stop() == 0
