"""The real programs, started as a user starts them, on folders of their own: collect, job, export.

Fixture ``pipeline``: ``pipeline.job()``, ``pipeline.collect(...)``, ``pipeline.export()`` each start a child process
whose log lies in ``pipeline.directory``; whatever still runs at the end of the test is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from streaming.delta.log.storage import open_table
from tests.plugins.local_http import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streaming.delta.store.place import Place

PATIENCE = 120.0


class Program:
    """One child process, in a group of its own."""

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, environment: dict[str, str], cwd: Path | None = None
    ) -> None:
        self.name, self.log = name, log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                arguments, stdout=out, stderr=out, start_new_session=True, env={**os.environ, **environment}, cwd=cwd
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def children(self) -> list[int]:
        """Name the processes below this one, the JVM of a job among them."""
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.pid)], capture_output=True, text=True, check=False
        )
        return [int(pid) for pid in found.stdout.split()]

    def python(self) -> int:
        """Name the Python of a submitted driver; the others below it are those of Spark, maybe of lower numbers."""
        for pid in self.children():
            if b"deploy/spark/main.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        raise AssertionError(f"{self.name} has no Python; its log:\n{self.text()[-2000:]}")

    def jvm(self) -> int:
        for pid in self.children():
            if "java" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[0]:
                return pid
        raise AssertionError(f"{self.name} has no JVM; its log:\n{self.text()[-2000:]}")

    def left(self) -> str:
        """Name what still runs of its session: the JVM of a job is of that of its Python."""
        command = ["ps", "-o", "pid=,stat=,args=", "-s", str(self.pid)]
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return "\n".join(line for line in listed.splitlines() if " Z" not in line)

    def pause(self) -> None:
        """Pause every process of its session, as the suspension of its machine does."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the processes that are paused continue."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        command = ["ps", "-o", "pid=", "-s", str(self.pid)]
        for pid in subprocess.run(command, capture_output=True, text=True, check=False).stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), number)

    def kill(self) -> None:
        """End the whole group at once, as a power cut would."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        """Ask for a clean end, as Ctrl-C does; give the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)

    def stop_group(self) -> int:
        """Ask the whole group for a clean end, as an init system and a closed terminal do; give the exit code."""
        os.killpg(self.pid, signal.SIGTERM)
        return self.process.wait(60)

    def wait(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(seconds)


def rows_of(tables: Place, table: str) -> list[dict[str, Any]]:
    """Read a table of a directory or a store, without Spark; no rows while there is none."""
    opened = open_table(tables / table)
    if opened is None:
        return []
    found = QueryBuilder().register("t", opened).execute("select * from t")
    rows: list[dict[str, Any]] = pa.table(found).to_pylist()
    return rows


class Pipeline:
    """The folders of one installation, and the programs on them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bus, self.tables, self.checkpoint = directory / "bus", directory / "tables", directory / "checkpoint"
        self.port = free_port()
        self.programs: list[Program] = []

    def start(self, name: str, *arguments: str, **environment: str) -> Program:
        """Start ``isrwatch ARGUMENTS``."""
        return self.run(name, [sys.executable, "-m", "streaming.commands", *arguments], **environment)

    def run(self, name: str, arguments: Sequence[str], *, cwd: Path | None = None, **environment: str) -> Program:
        program = Program(name, arguments, self.directory / f"{name}.log", {**self._scratch(), **environment}, cwd)
        self.programs.append(program)
        return program

    def _scratch(self) -> dict[str, str]:
        """Let programs put their temporary files here: what is killed, Spark above all, leaves them behind."""
        folder = self.directory / "scratch"
        folder.mkdir(parents=True, exist_ok=True)
        options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={folder}"
        kept = {"ISRWATCH_TABLES__HISTORY": "forever"}  # simulated clusters are of any year
        return {"TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder), "SPARK_SUBMIT_OPTS": options, **kept}

    def job_arguments(self) -> list[str]:
        folders = ["--bus", str(self.bus), "--tables", str(self.tables), "--checkpoint", str(self.checkpoint)]
        return [*folders, "--listen", ""]

    def job(self) -> Program:
        program = self.start("job", "job", *self.job_arguments())
        self.eventually(lambda: "running" in program.text(), "the job runs", program)
        return program

    def collect(self, *arguments: str) -> Program:
        return self.start("collect", "collect", "--bus", str(self.bus), "--listen", "", *arguments)

    def export(self, *arguments: str) -> Program:
        listen = f"127.0.0.1:{self.port}"
        program = self.start(
            "export", "export", "--tables", str(self.tables), "--web.listen-address", listen, *arguments
        )
        self.eventually(lambda: self.metrics() is not None, "the exporter is ready", program)
        return program

    def metrics(self) -> dict[str, float] | None:
        """Scrape the exporter: series to value, None while it is not ready."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return None
        samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {series: float(value) for series, value in samples}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Read a table, without Spark."""
        return rows_of(self.tables, table)

    def eventually(
        self, condition: Callable[[], Any], what: str, program: Program | None = None, seconds: float = PATIENCE
    ) -> Any:
        """Wait until a condition holds, and give what it gave; fail when a program died or time ran out."""
        deadline, began = time.monotonic() + seconds, time.monotonic()
        while not (found := condition()):
            if program is not None and program.process.poll() is not None:
                raise AssertionError(f"{program.name} ended before: {what}\n{program.text()[-3000:]}")
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {each.name}\n{each.text()[-2000:]}" for each in self.programs)
                raise AssertionError(f"waited {seconds} s in vain for: {what}\n{logs}")
            # To read tables takes a core from the job that is waited for: at most a third of one.
            time.sleep(max(0.05, 2 * (time.monotonic() - began)))
            began = time.monotonic()
        return found

    def close(self) -> None:
        for program in self.programs:
            program.kill()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path)
    try:
        yield made
    finally:
        made.close()
