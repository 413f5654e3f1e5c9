"""``isrwatch demo``: the whole pipeline on a simulated cluster, in real time.

Each part is the command that runs in production, in a process of its own: ``collect --simulate``, ``job``, ``export``.
This module knows the order in which they start and how to check that they are ready, not what they do.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from exporters.demo.live import DemoProgress, newest, screen
from exporters.demo.location import PORT, DemoLocation, empty_folder, free_port
from exporters.demo.summary import PipelineIncomplete, counted_events, missing, print_summary
from exporters.read_model.reader import TablesReader, micros_now
from exporters.running.supervision import PartEnded, Supervisor
from streaming.configuration_file import without_configuration
from streaming.durations import seconds_of
from streaming.errors import IsrwatchError
from streaming.resources import conf_path
from streaming.runtime.java import find_java
from streaming.sources.simulated.scenario_file import load_scenario
from streaming.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


SCENARIO: Final = "broker_loss"
REFRESH_SECONDS: Final = 0.25
START_SECONDS: Final = 300.0


def scenarios() -> list[str]:
    """Return the names of the scenarios in ``conf/scenarios``."""
    return sorted(path.stem for path in conf_path("scenarios").glob("*.toml"))


def demo(
    *,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="End after a live view of this long: 60s, 10m.")
    ] = None,
    scenario: Annotated[
        str, typer.Option(help=f"What happens to the cluster: {', '.join(scenarios())}; a+b runs both.")
    ] = SCENARIO,
    speed: Annotated[float, typer.Option(min=0.1, max=100, help="Simulated seconds per second.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers; another seed gives another run.")] = 1,
    directory: Annotated[
        Path | None, typer.Option(help="Empty or new folder for the state; default: a temporary one.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help=f"Port of /metrics; default: {PORT}, or a free port if it is taken."),
    ] = None,
) -> None:
    """Run the whole pipeline on a simulated cluster, from the sources to the exporter, with a live view."""
    seconds = None if lasts is None else seconds_of("--for", lasts)
    load_scenario(scenario)  # refuse an unknown name before anything starts
    location = DemoLocation(directory=empty_folder(directory), port=free_port(port))
    console = Terminal()
    simulate = ["--simulate", scenario, "--speed", str(speed), "--seed", str(seed)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends the demo like Ctrl-C
    try:
        with parts_of(location, simulate) as parts:
            running = DemoRun(console, parts, location)
            reader = running.start()
            progress, metrics = running.watch(reader, seconds, f"scenario {scenario}, speed {speed:g}")
    except PartEnded as error:
        raise PartEnded(f"{error} (all of it is in {location.logs})", error.log) from None
    except KeyboardInterrupt:
        console.print(Text("stopped; nothing is left running"))
        raise typer.Exit(130) from None
    if speed != 1:
        progress.latencies.clear()  # simulated time is not wall-clock time
    print_summary(console, progress, location.tables, location.page_url)
    if lack := missing(progress, counted_events(location.tables).total(), metrics):
        raise PipelineIncomplete(f"the demo ran, but {lack}; see the logs in {location.logs}")


def parts_of(location: DemoLocation, simulate: list[str]) -> Supervisor:
    """Return the parts of a demo, that of Spark first, as it takes longest; what they print goes into its folder."""
    location.bus.mkdir(exist_ok=True)
    location.logs.mkdir(exist_ok=True)
    tables = ["--tables", f"{location.tables}"]
    job = ["--bus", f"{location.bus}", *tables, "--checkpoint", f"{location.checkpoint}", "--listen", ""]
    commands = {
        "job": job,
        "collect": [*simulate, "--bus", f"{location.bus}", "--listen", ""],
        "export": [*tables, "--web.listen-address", location.address],
    }

    def into_log(name: str, line: str) -> None:
        with (location.logs / f"{name}.log").open("a", encoding="utf-8") as log:
            log.write(f"{line}\n")

    environment = without_configuration(os.environ)
    return Supervisor(commands, into_log, lambda _: None, restarts=False, environment=environment)


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One run of the demo: the console, the child processes, the folder and port."""

    console: Terminal
    parts: Supervisor
    location: DemoLocation

    def start(self) -> TablesReader:
        """Wait for all parts, of which each waits for its input; return a reader of the tables."""
        stages, parts, location = StartStages(self.console), self.parts, self.location
        with stages.stage("finding Java") as stage:
            java = find_java()
            stage.label = f"Java {java.version} ({java.origin})"
        with stages.stage("simulated Kafka cluster"):
            wait_until(lambda: any(location.bus.rglob("*.log")), "the simulated cluster", parts, START_SECONDS)
        with stages.stage("Spark"):
            wait_until(lambda: any(location.checkpoint.rglob("metadata")), "Spark", parts, START_SECONDS)
        reader = TablesReader(location.tables)
        with stages.stage("first batch in the tables"):
            wait_until(lambda: DemoProgress(newest(reader)).partitions(), "the first batch", parts, START_SECONDS)
        with stages.stage(f"exporter at {location.page_url}"):
            wait_until(location.metrics, "the exporter", parts, START_SECONDS)
        return reader

    def watch(self, reader: TablesReader, seconds: float | None, title: str) -> tuple[DemoProgress, str]:
        """Show the live view until the time is over or Ctrl-C; return the progress and the last scrape."""
        ends = None if seconds is None else time.monotonic() + seconds
        progress = DemoProgress(newest(reader))
        heading = f"isrwatch demo  {title}  {self.location.page_url}\ntables in {self.location.tables}"
        with suppress(KeyboardInterrupt), screen(self.console, heading) as shown:
            while ends is None or time.monotonic() < ends:
                self.parts.check()
                snapshot, now = newest(reader), micros_now()
                left = "Ctrl-C ends" if ends is None else f"ends in {max(0.0, ends - time.monotonic()):.0f} s"
                shown.show(snapshot, progress.update(snapshot, now), now, left)
                time.sleep(REFRESH_SECONDS)
        return progress, self.location.metrics()


# The stages of the start: a spinner on a terminal, one line per stage in a pipe.


POLL_SECONDS: Final = 0.1


class StageFailed(IsrwatchError):
    """A part runs but does not become ready: the message names the stage."""


@dataclass(slots=True)
class StartStage:
    """The current stage; ``label`` is printed on its line when it is over."""

    label: str


@dataclass(frozen=True, slots=True)
class StartStages:
    """Shows stages on a console."""

    console: Terminal

    @contextmanager
    def stage(self, name: str) -> Iterator[StartStage]:
        """Show a stage while it runs, then print a line with its duration; no line if it fails."""
        began = time.monotonic()
        with self.console.status(name):
            stage = StartStage(name)
            yield stage
        line = Text.assemble(("✓ ", "green"), stage.label, (f"  {time.monotonic() - began:.1f} s", "dim"))
        self.console.print(line, soft_wrap=True)


def wait_until(ready: Callable[[], object], what: str, parts: Supervisor, seconds: float) -> None:
    """Poll until something is ready, while all parts run.

    Raises:
        PartEnded: a part has ended.
        StageFailed: it took longer than ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        parts.check()
        if time.monotonic() > deadline:
            raise StageFailed(f"{what} was not ready after {seconds:.0f} s; see the logs of the parts")
        time.sleep(POLL_SECONDS)
