"""``isrwatch simulate``: run a scenario in the model and print its events with their causes. Requires no Java.

Depends on scenarios and their timelines, not on the bus or tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from streaming.commands.simulate_output import JsonLines, Lines, Timeline, print_presets
from streaming.contracts.identifiers import Micros
from streaming.resources import conf_path
from streaming.sources.simulated.scenario_file import load_scenario
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation
from streaming.sources.simulated.timeline import Entry, timeline
from streaming.word_wrap import print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.model.invariants.ghost import Loss


def simulate(
    scenario: Annotated[
        str | None,
        typer.Argument(help="Name of a built-in scenario, or a .toml file; without one, list the scenarios."),
    ] = None,
    *,
    seconds: Annotated[
        float | None,
        typer.Option("--for", min=0.001, metavar="SECONDS", help="Seconds to simulate; default: all of it."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    steps: Annotated[bool, typer.Option("--steps", help="Print a line for every step of every partition.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Report violated invariants; exit with 1 if any.")] = False,
    presets: Annotated[
        bool, typer.Option("--presets", help="Print the differences between the versions of Kafka.")
    ] = False,
) -> None:
    """Run a scenario in the model of a Kafka cluster and print all leader and ISR changes with their true causes."""
    console = Console(highlight=False)
    if presets:
        print_presets(console)
    elif scenario is None:
        _list(console)
    else:
        output: Timeline = JsonLines() if as_json else Lines(console)
        _play(scenario, output, seed=seed, seconds=seconds, steps=steps or as_json, check=check)


def _play(scenario: str, output: Timeline, *, seed: int, seconds: float | None, steps: bool, check: bool) -> None:
    played = load_scenario(scenario)
    output.begin(played, seed)
    simulation = Simulation(played, seed=seed, origin=Micros(0), watched=True)
    for entry in _entries(simulation, played.duration if seconds is None else seconds, each_step=steps):
        output.entry(entry)
    output.end(simulation, check=check)
    if check and simulation.watch is not None and (simulation.watch.violations or simulation.group_violations):
        raise typer.Exit(1)


def _list(console: Console) -> None:
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
