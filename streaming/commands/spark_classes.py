"""Archives the classes that Spark loads, by running a job for a moment: later ones start in half the time."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.errors import IsrwatchError
from streaming.jobs.registry import QUERIES
from streaming.jobs.session import JAVA_OPTIONS, java_options, measured_configuration, spark_archive
from streaming.runtime import class_archive
from streaming.sources.simulated import SimulatedSource, load_scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATIENCE: Final = 120.0
_SIMULATED_SECONDS: Final = 40


class NotArchived(IsrwatchError):
    """No archive was made: the job that loads the classes did not run, or its JVM was killed."""


def archive() -> Path:
    """Return the archive of this Java and this Spark, made if there is none.

    Raises:
        MissingTool: there is no Java that Spark runs on.
        NotArchived: the job ended without making one; with its last line.
        OSError: the archive cannot be written.
    """
    path = spark_archive()
    if not path.exists():
        with tempfile.TemporaryDirectory(prefix="isrwatch-classes-") as folder:
            draft = Path(folder, "classes.jsa")
            _publish(Path(folder, "bus"))
            last_line = _run_job(Path(folder), class_archive.recording(draft))
            class_archive.save(draft, path)
        if not path.exists():
            raise NotArchived(last_line)
    return path


def _publish(bus: Path) -> None:
    source = SimulatedSource(
        load_scenario("broker_loss"), seed=1, cluster_id=ClusterId("c"), cluster="c", name="simulated:c",
        epoch=Micros(time.time_ns() // 1000),
    )  # fmt: skip
    publisher = DirectoryPublisher(bus, segment_bytes=1 << 20)
    publisher.publish(source.poll(Micros(time.time_ns() // 1000 + _SIMULATED_SECONDS * 1_000_000)))
    publisher.close()


def _run_job(folder: Path, options: Sequence[str]) -> str:
    """Run a job until every query has written, and wait until its JVM has ended, which holds its output open.

    Returns:
        The last line of its output.
    """
    places = [part for name in ("bus", "tables", "checkpoint") for part in (f"--{name}", str(folder / name))]
    command = [sys.executable, "-m", "streaming.commands", "job", *places, "--listen", ""]
    recording = java_options(measured_configuration()[JAVA_OPTIONS], options)
    submit = shlex.join(["--conf", f"{JAVA_OPTIONS}={recording}", "pyspark-shell"])
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    job = subprocess.Popen(  # noqa: S603 - ourselves
        command,
        cwd=folder,
        env={**environment, "PYSPARK_SUBMIT_ARGS": submit},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    deadline = time.monotonic() + _PATIENCE
    try:
        while job.poll() is None and time.monotonic() < deadline and not _has_committed(folder / "checkpoint"):
            time.sleep(0.2)
        job.send_signal(signal.SIGINT)
        output, _ = job.communicate(timeout=_PATIENCE)
        return (output.decode(errors="replace").splitlines() or [""])[-1]
    except subprocess.TimeoutExpired:
        return f"its JVM has not ended after {_PATIENCE:.0f} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)  # its JVM, too


def _has_committed(checkpoint: Path) -> bool:
    """Return whether each query has been through a batch."""
    return len(list(checkpoint.glob("*/commits/0"))) == len(QUERIES)
