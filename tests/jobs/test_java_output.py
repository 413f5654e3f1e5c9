"""What Spark's Java process prints is passed on as it is; a Python worker that came too late to connect is no news."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from streaming.errors import IsrwatchError
from streaming.jobs import java_output
from streaming.jobs.java_output import JavaOutput, without_late_workers

if TYPE_CHECKING:
    from pathlib import Path

LATE = """Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/site-packages/pyspark/util.py", line 852, in local_connect_and_auth
    raise PySparkRuntimeError(
pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket: ["tried to connect to \
('127.0.0.1', 37143), but an error occurred: timed out"].""".splitlines()
OTHER = [
    "Traceback (most recent call last):",
    '  File "x.py", line 1',
    "ModuleNotFoundError: No module named 'pyarrow'",
]
BARE = [*OTHER[:2], "KeyboardInterrupt"]
LOG = "2026-03-01T10:00:00.000Z ERROR Inbox: it is lost"
JAVA = ["java.lang.OutOfMemoryError: Java heap space", "\tat org.apache.spark.X"]


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (LATE, []),
        ([*JAVA, *LATE, LOG], [*JAVA, LOG]),
        ([*OTHER, *LATE, *BARE], [*OTHER, *BARE]),
        ([*LATE[:3], LOG, *LATE[3:], *JAVA], [LOG, *JAVA]),
        ([*OTHER[:2], *LATE], OTHER[:2]),
        (OTHER[:2], OTHER[:2]),
        ([*OTHER[:1], *["  and on"] * 600, "x"], [*OTHER[:1], *["  and on"] * 600, "x"]),
    ],
    ids=["alone", "between lines of Java", "next to others", "cut by a line", "after half of one", "half", "endless"],
)
def test_the_traceback_of_a_late_worker_is_left_out_and_nothing_else(lines: list[str], shown: list[str]) -> None:
    assert [*without_late_workers(lines)] == shown


def test_the_last_lines_of_a_process_are_there_before_its_end_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "stderr").open("w") as stderr:
        monkeypatch.setattr(java_output, "STDERR", stderr.fileno())
        output = JavaOutput()
        with output.opened() as file:
            os.write(file, "\n".join([*JAVA, *LATE, LOG, ""]).encode())
        output.wait()
        assert (tmp_path / "stderr").read_text().splitlines() == [*JAVA, LOG]


def test_a_process_is_never_held_up_by_a_stderr_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(java_output, "STDERR", writing)
    output, began = JavaOutput(), time.monotonic()
    with output.opened() as file:
        for _ in range(1_000):
            os.write(file, b"x" * 100 + b"\n")
    output.wait()
    os.close(writing)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("fails", [False, True])
def test_what_java_prints_while_the_job_stops_is_shown_if_the_stop_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    with (tmp_path / "stderr").open("w") as stderr:
        monkeypatch.setattr(java_output, "STDERR", stderr.fileno())
        output = JavaOutput()
        with suppress(IsrwatchError), output.shown_on_failure():
            with output.opened() as file:
                os.write(file, b"before\n")
                while not (tmp_path / "stderr").read_text():
                    time.sleep(0.01)
                output.hold()
                os.write(file, b"meanwhile\n")
            output.wait()
            if fails:
                raise IsrwatchError("a query stopped for good")
        assert (tmp_path / "stderr").read_text().splitlines() == ["before", *["meanwhile"] * fails]
