"""``isrwatch simulate``: run a scenario in the model and print its events with their causes. Requires no Java.

Depends on scenarios and their timelines, not on the bus or tables.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer
from rich.table import Table
from rich.text import Text

from streaming.contracts.identifiers import Micros
from streaming.durations import seconds_of
from streaming.escapes import json_text, printable
from streaming.model import constants
from streaming.model.cluster.descriptions import hanging
from streaming.model.invariants import groups
from streaming.model.invariants.watch import INVARIANTS, OTHERS
from streaming.resources import conf_path
from streaming.sources.simulated.scenario_file import load_scenario
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation
from streaming.sources.simulated.timeline import Entry, timeline
from streaming.terminal import AnswerFormat, Terminal, print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.model.invariants.ghost import Loss
    from streaming.sources.simulated.scenario import Scenario


def simulate(
    scenario: Annotated[
        str | None,
        typer.Argument(help="Name of a built-in scenario, or a .toml file; without one, list the scenarios."),
    ] = None,
    *,
    lasts: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="How much to simulate: 90s, 10m; default: all of it."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    steps: Annotated[bool, typer.Option("--steps", help="Print a line for every step of every partition.")] = False,
    answer: Annotated[
        AnswerFormat, typer.Option("--output", "-o", metavar="FORMAT", help="table or json: one document.")
    ] = AnswerFormat.TABLE,
    check: Annotated[bool, typer.Option("--check", help="Report violated invariants; exit with 1 if any.")] = False,
    presets: Annotated[
        bool, typer.Option("--presets", help="Print the differences between the versions of Kafka.")
    ] = False,
) -> None:
    """Run a scenario in the model of a Kafka cluster and print all leader and ISR changes with their true causes."""
    console = Terminal()
    seconds = None if lasts is None else seconds_of("--for", lasts)
    if presets:
        print_presets(console)
    elif scenario is None:
        _list(console)
    else:
        is_json = answer is AnswerFormat.JSON
        output: Timeline = JsonDocument() if is_json else Lines(console)
        _play(scenario, output, seed=seed, seconds=seconds, steps=steps or is_json, check=check)


def _play(scenario: str, output: Timeline, *, seed: int, seconds: float | None, steps: bool, check: bool) -> None:
    played = load_scenario(scenario)
    output.begin(played, seed)
    simulation = Simulation(played, seed=seed, origin=Micros(0), watched=True)
    for entry in _entries(simulation, played.duration if seconds is None else seconds, each_step=steps):
        output.entry(entry)
    output.end(simulation, check=check)
    if check and simulation.watch is not None and (simulation.watch.violations or simulation.group_violations):
        raise typer.Exit(1)


def _list(console: Terminal) -> None:
    for path in sorted(conf_path("scenarios").glob("*.toml")):
        print_wrapped(console, Text.assemble((f"{path.stem:26}", "bold"), load_scenario(path).description))


def _entries(simulation: Simulation, seconds: float, *, each_step: bool) -> Iterator[Entry]:
    """Simulate one second at a time, so that a long run prints while it is running."""
    simulation.play(WARM_UP_MS - 1, lambda: None)
    simulation.cluster.take_commits()
    losses: list[Entry] = []
    end = WARM_UP_MS + round(seconds * 1_000)
    for until in (*range(WARM_UP_MS, end, 1_000), end):
        simulation.play(until, lambda: losses.extend(_losses(simulation)))
        entries = [Entry(at, "fault", fault.sentence()) for at, fault in simulation.take_faults()]
        entries += timeline(simulation.cluster.take_commits(), each_step=each_step)
        entries += losses
        losses.clear()
        yield from sorted(entries, key=lambda entry: entry.at)


def _losses(simulation: Simulation) -> Iterator[Entry]:
    """Return the losses of acknowledged records since the last call."""
    watch = simulation.watch
    if watch is None or not watch.losses:
        return
    losses, watch.losses = watch.losses, []
    for excuse in dict.fromkeys(loss.excuse for loss in losses):
        lost = [loss for loss in losses if loss.excuse == excuse]
        records = sum(loss.records for loss in lost)
        yield Entry(simulation.cluster.now, _partitions(lost), f"{records} acknowledged records lost: {excuse}", "loss")


def _partitions(losses: list[Loss]) -> str:
    return f"{len(losses)} partition{'s' * (len(losses) != 1)}"


# Output of ``isrwatch simulate``: aligned lines, or a JSON document; and the table of versions.


_COLOURS: Final = {
    "fault": "magenta",
    "loss": "bold red",
    "fenced": "red",
    "unclean_election": "bold red",
    "last_known_leader": "bold red",
    "lag": "yellow",
    "leader_stall": "yellow",
    "controller_stall": "yellow",
    "two_processes": "yellow",
    "expand": "green",
}


class Timeline(Protocol):
    """Receives the entries of a run."""

    def begin(self, scenario: Scenario, seed: int) -> None:
        """Begin a run."""

    def entry(self, entry: Entry) -> None:
        """Print one entry."""

    def end(self, simulation: Simulation, *, check: bool) -> None:
        """End the run; with ``check``, report violated invariants."""


def seconds(at: int) -> float:
    """Return the seconds since the begin of the scenario."""
    return (at - WARM_UP_MS) / 1_000


class Lines:
    """Aligned lines, coloured on a terminal, never wrapped in a pipe."""

    def __init__(self, console: Terminal) -> None:
        self._console = console

    def _print(self, text: Text) -> None:
        print_wrapped(self._console, text)

    def begin(self, scenario: Scenario, seed: int) -> None:
        """Print the scenario."""
        partitions = sum(topic.partitions for topic in scenario.topics)
        size = f"{len(scenario.brokers)} brokers, {partitions} partitions, seed {seed}; times in seconds"
        self._print(Text(f"{scenario.name}: {scenario.description} ({size})", style="bold"))

    def entry(self, entry: Entry) -> None:
        """Print one line."""
        cause = f"  [{entry.cause}]" if entry.cause else ""
        line = f"{entry.subject:16} {entry.what}{cause}"
        colour = _COLOURS.get(entry.cause or entry.subject, "")
        self._print(Text.assemble((f"{seconds(entry.at):9.3f}  ", "dim"), (line, colour)))

    def end(self, simulation: Simulation, *, check: bool) -> None:
        """Print the partitions that are not in sync, rejected records, and violated invariants."""
        cluster = simulation.cluster
        partitions = cluster.controller.registry.partitions.values()
        short = sum(1 for partition in partitions if len(partition.isr) < len(partition.replicas))
        self._print(Text(f"at the end {short} of {len(partitions)} partitions are not fully in sync"))
        if cluster.refused:
            self._print(Text(f"{cluster.refused} records were refused: no leader, or under min ISR", style="yellow"))
        for line in _undecided(simulation):
            self._print(Text(line, style="yellow"))
        if not check or simulation.watch is None:
            return
        broken = simulation.watch.violations
        for violation in broken:
            self._print(Text(str(violation), style="bold red"))
        kept = len(INVARIANTS) + len(OTHERS) - len(broken)
        self._print(Text(f"{kept} invariants held after every step, {len(broken)} did not", style="bold"))
        if simulation.group_watch is not None:
            self._end_of_groups(simulation)

    def _end_of_groups(self, simulation: Simulation) -> None:
        broken = simulation.group_violations.values()
        for violation in broken:
            self._print(Text(str(violation), style="bold red"))
        kept = len(groups.INVARIANTS) + len(groups.OTHERS) - len(broken)
        self._print(Text(f"{kept} invariants of groups held each second, {len(broken)} did not", style="bold"))


def _undecided(simulation: Simulation) -> Iterator[str]:
    """Return a line for each partition where a hanging transaction blocks readers of committed records."""
    open_in = [key for transaction in hanging(simulation.cluster).values() for key in transaction.partitions]
    for broker in simulation.cluster.reachable():
        for key in open_in:
            led = broker.leadership.led.get(key)
            if led is not None:
                waits = f"readers of committed records wait at offset {led.last_stable_offset}"
                where = f"{simulation.topic_name(key.topic_id)}-{key.partition}"
                yield f"{where}: {waits}, {led.last_stable_offset_lag} behind, for a transaction that does not end"


class JsonDocument:
    """One JSON document: the scenario with its truth, the entries, each on a line as it comes, then the end."""

    def __init__(self) -> None:
        self._separator = ""

    def begin(self, scenario: Scenario, seed: int) -> None:
        """Print the scenario, with what a monitor is expected to report."""
        document = {
            "scenario": scenario.name,
            "seed": seed,
            "brokers": scenario.brokers,
            "faults": [
                {name: value for name, value in asdict(fault).items() if value is not None} for fault in scenario.faults
            ],
            "truth": asdict(scenario.truth),
        }
        self._print(json_text(document).removesuffix("}") + ', "entries": [')

    def entry(self, entry: Entry) -> None:
        """Print one entry."""
        fields = entry._asdict() | {"at": seconds(entry.at), "after": entry.after and entry.after._asdict()}
        text = json_text({name: value for name, value in fields.items() if value not in ("", None)})
        self._print(self._separator + text)
        self._separator = ","

    def end(self, simulation: Simulation, *, check: bool) -> None:
        """Print the state of every partition, and violated invariants."""
        cluster = simulation.cluster
        states = {
            f"{simulation.topic_name(key.topic_id)}-{key.partition}": state._asdict()
            for key, state in cluster.controller.registry.partitions.items()
        }
        end: dict[str, Any] = {"refused": cluster.refused, "partitions": states}
        if check and simulation.watch is not None:
            broken = (*simulation.watch.violations, *simulation.group_violations.values())
            end["violations"] = [str(violation) for violation in broken]
        self._print("], " + json_text(end).removeprefix("{"))

    @staticmethod
    def _print(text: str) -> None:
        Terminal().document([text])


def print_presets(console: Terminal) -> None:
    """Print the differences between versions; an empty cell means the value of the newest version."""
    heading, *rows = constants.table()
    if not console.is_terminal:
        console.document("\t".join(map(printable, row)).rstrip() for row in (heading, *rows))
        return
    printed = Table(*heading, box=None, header_style="bold", title_justify="left")
    for row in rows:
        printed.add_row(*row)
    console.print(printed)
