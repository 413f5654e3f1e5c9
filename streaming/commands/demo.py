"""``isrwatch demo``: the whole way of the data on a simulated cluster, in real time.

Each part is the command that a production runs, in a process of its own: ``collect --simulate``, ``job``, ``export``.
This file knows the order in which they start and how to see that they are ready, nothing of what they do.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from exporters.reader import Reader
from streaming.commands.demo_live import Watched, newest, now_micros, screen
from streaming.commands.demo_parts import Parts
from streaming.commands.demo_place import PORT, Place, empty_folder, free_port
from streaming.commands.demo_stages import Stages, wait_until
from streaming.commands.demo_summary import NothingFlowed, counted_events, missing, print_summary
from streaming.resources import conf_path
from streaming.runtime.jars import DELTA, jar_paths
from streaming.runtime.java import find_java
from streaming.sources.simulated.scenario_file import load_scenario

SCENARIO: Final = "broker_loss"
LOOK_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 300.0


def scenarios() -> list[str]:
    """Name the scenarios of ``conf/scenarios``."""
    return sorted(path.stem for path in conf_path("scenarios").glob("*.toml"))


def demo(
    *,
    seconds: Annotated[
        float | None, typer.Option("--for", min=1, metavar="SECONDS", help="End by itself, after so long a live view.")
    ] = None,
    scenario: Annotated[
        str, typer.Option(help=f"What happens to the cluster: {', '.join(scenarios())}; a+b plays both.")
    ] = SCENARIO,
    speed: Annotated[float, typer.Option(min=0.1, max=100, help="Simulated seconds in one second.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Another seed, another run.")] = 1,
    directory: Annotated[
        Path | None, typer.Option(help="Empty or new folder for its state; default: a temporary one.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help=f"Port of /metrics; default: {PORT}, or a free one.")
    ] = None,
) -> None:
    """Run everything on a simulated cluster: sources, bus, Spark job, Delta tables, exporter, and watch it live."""
    load_scenario(scenario)  # a wrong name is refused before anything starts
    place = Place(directory=empty_folder(directory), port=free_port(port))
    console = Console()
    simulate = ["--simulate", scenario, "--speed", str(speed), "--seed", str(seed)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is Ctrl-C
    try:
        with Parts(logs=place.logs) as parts:
            running = Demo(console, parts, place)
            reader = running.start(simulate)
            watched, metrics = running.watch(reader, seconds, f"scenario {scenario}, speed {speed:g}")
    except KeyboardInterrupt:
        console.print(Text("stopped; nothing is left running"))
        raise typer.Exit(130) from None
    if speed != 1:
        watched.latencies.clear()  # simulated time is not the time of this clock
    print_summary(console, watched, place.tables, place.metrics_url)
    if lack := missing(watched, counted_events(place.tables).total(), metrics):
        raise NothingFlowed(f"the demo ran, but {lack}; see the logs in {place.logs}")


@dataclass(frozen=True, slots=True)
class Demo:
    """One demo: what it is shown on, its parts, and where they live."""

    console: Console
    parts: Parts
    place: Place

    def start(self, simulate: list[str]) -> Reader:
        """Start part after part, each once it can see what it needs."""
        stages, parts, place = Stages(self.console), self.parts, self.place
        with stages.stage("finding Java") as stage:
            java = find_java()
            stage.told = f"Java {java.version} ({java.origin})"
        with stages.stage("fetching and verifying the jars of Delta") as stage:
            stage.told = f"{len(jar_paths(DELTA))} jars of Delta"
        with stages.stage("simulated Kafka cluster"):
            parts.start("collect", *simulate, "--bus", f"{place.bus}")
            wait_until(lambda: any(place.bus.rglob("*.log")), "the simulated cluster", parts, PATIENCE_SECONDS)
        with stages.stage("Spark"):
            folders = {"--bus": place.bus, "--tables": place.tables, "--checkpoint": place.checkpoint, "--listen": ""}
            parts.start("job", *(word for option in folders.items() for word in map(str, option)))
            wait_until(lambda: any(place.checkpoint.rglob("metadata")), "Spark", parts, PATIENCE_SECONDS)
        reader = Reader(place.tables)
        with stages.stage("first batch in the tables"):
            wait_until(lambda: Watched(newest(reader)).partitions(), "the first batch", parts, PATIENCE_SECONDS)
        with stages.stage(f"exporter at {place.metrics_url}"):
            parts.start("export", "--tables", f"{place.tables}", "--web.listen-address", place.address)
            wait_until(place.metrics, "the exporter", parts, PATIENCE_SECONDS)
        return reader

    def watch(self, reader: Reader, seconds: float | None, title: str) -> tuple[Watched, str]:
        """Show what happens until the time is over or Ctrl-C; give what was seen, and the last scrape."""
        ends = None if seconds is None else time.monotonic() + seconds
        watched = Watched(newest(reader))
        heading = f"isrwatch demo  {title}  {self.place.metrics_url}  tables in {self.place.tables}"
        with suppress(KeyboardInterrupt), screen(self.console, heading) as shown:
            while ends is None or time.monotonic() < ends:
                self.parts.check()
                snapshot, now = newest(reader), now_micros()
                left = "Ctrl-C ends" if ends is None else f"ends in {max(0.0, ends - time.monotonic()):.0f} s"
                shown.show(snapshot, watched.look(snapshot, now), now, left)
                time.sleep(LOOK_SECONDS)
        return watched, self.place.metrics()
