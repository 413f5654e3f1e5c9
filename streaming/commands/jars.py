"""``isrwatch jars``: show, download, verify and lock the jars."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.errors import IsrwatchError
from streaming.jobs.application import QUERIES
from streaming.jobs.session import JAVA_OPTIONS, java_options, measured_configuration, spark_archive
from streaming.resources import conf_path
from streaming.runtime import class_archive, jars
from streaming.runtime.folders import exclusive
from streaming.sources.simulated import SimulatedSource, load_scenario
from streaming.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDE: Final = 1_000  # in a pipe no line is wrapped or truncated
app = typer.Typer(no_args_is_help=False, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback(invoke_without_command=True)
def show(context: typer.Context) -> None:
    """Show the jars of Spark and the sandbox, and which of them are here."""
    if context.invoked_subcommand is not None:
        return
    table = Table("group", "coordinate", "kB", "here")
    for name, group in jars.groups().items():
        for jar, checksum in sorted(group.jars.items()):
            path = jars.path_of(jar, checksum)
            size = f"{path.stat().st_size // 1024:,}" if path.exists() else ""
            state = "yes" if jars.intact(jar, checksum) else "damaged" if path.exists() else "no"
            table.add_row(name, Text(str(jar)), size, state)  # as markup ":one:" would be an emoji
    table.columns[2].justify = "right"
    console = _console()
    console.print(table)
    console.print(f"Folder: {jars.jars_folder()}. Fetch with: isrwatch jars fetch [GROUP...]", soft_wrap=True)


def _console() -> Terminal:
    return Terminal(width=None if sys.stdout.isatty() else _WIDE)


@app.command()
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP]...", help="Default: all that are in use.")
    ] = None,
) -> None:
    """Download the missing jars of the groups, and verify those in the cache. Groups for long tests must be named.

    With Spark's connector it also archives, once, the classes that Spark loads, by running a short job.
    """
    console = _console()
    selected = tuple(names or jars.usual_groups())
    with console.status("fetching jars") as status:
        paths = jars.jar_paths(*selected, progress=lambda file: status.update(f"fetched {file}"))
        repaired = _repair(selected)
    megabytes = sum(path.stat().st_size for path in paths) / (1 << 20)
    have = f"{len(paths)} jars ({megabytes:,.1f} MB) in {jars.jars_folder()}"
    console.print(f"{have}{f', {repaired} fetched again' if repaired else ''}", soft_wrap=True)
    if jars.SPARK_KAFKA in selected and find_spec("pyspark") is not None:
        _archive_classes(console)


@app.command()
def paths(names: Annotated[list[str], typer.Argument(metavar="GROUP...")]) -> None:
    """Print the paths of the jars of the groups, as --jars of spark-submit takes them; download what is missing.

    Example: spark-submit --jars $(isrwatch jars paths spark-kafka) deploy/spark/main.py --config isrwatch.toml
    """
    Terminal().row(",".join(str(path) for path in jars.jar_paths(*names)))


def _archive_classes(console: Terminal) -> None:

    try:
        with console.status("archiving Spark's classes, once: a minute"):
            outcome = f"Spark's classes in {archive()}"
    except (IsrwatchError, OSError) as error:
        outcome = f"Spark's classes are not archived, so it starts in twice the time: {error}"
    console.print(outcome, soft_wrap=True)


def _repair(names: tuple[str, ...]) -> int:
    """Download again the cached jars that do not match the lock file; return their number."""
    groups = jars.groups()
    damaged = {
        jar: checksum for name in names for jar, checksum in groups[name].jars.items() if not jars.intact(jar, checksum)
    }
    with exclusive(jars.jars_folder()):
        jars.install(damaged, lambda _: None)
    return len(damaged)


@app.command()
def lock() -> None:
    """Resolve "resolve" and "exact" of conf/jars.lock again and write the result. For developers of isrwatch."""
    console = _console()
    with console.status("resolving") as status:
        text = jars.relock(lambda file: status.update(f"resolving, fetched {file}"))
    conf_path("jars.lock").write_text(text, encoding="utf-8")
    console.print(f"wrote {conf_path('jars.lock')}")


# Archives the classes that Spark loads, by running a job for a moment: later ones start in half the time.


_PATIENCE: Final = 120.0
_SIMULATED_SECONDS: Final = 40


class ArchiveMissing(IsrwatchError):
    """No archive was made: the job that loads the classes did not run, or its JVM was killed."""


def archive() -> Path:
    """Return the archive of this Java and this Spark, made if there is none.

    Raises:
        MissingTool: there is no Java that Spark runs on.
        ArchiveMissing: the job ended without making one; with its last line.
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
            raise ArchiveMissing(last_line)
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
    """Run a job until every query has written; return the last line of its output.

    Wait until its JVM has ended, which holds its output open.
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
    """Return whether each stream has been through a batch."""
    streams = [name for name, query in QUERIES.items() if query.stream is not None]
    return all((checkpoint / name / "commits" / "0").exists() for name in streams)
