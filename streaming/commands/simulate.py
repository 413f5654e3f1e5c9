"""``isrwatch simulate``: play a scenario in the model and print what happens, why, and who is to blame. No Java.

Knows scenarios and their timelines, nothing of the bus or of tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from streaming.commands.simulate_output import JsonLines, Lines, Timeline
from streaming.commands.simulate_swarm import print_presets
from streaming.commands.simulate_swarm import swarm as run_swarm
from streaming.contracts.identifiers import Micros
from streaming.model.presets import NEWEST
from streaming.resources import conf_path
from streaming.sources.simulated.scenario_file import load_scenario
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation
from streaming.sources.simulated.timeline import Entry, timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.model.invariants.ghost import Loss


def simulate(
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario that comes with isrwatch, or a .toml file; without one, all are listed."),
    ] = None,
    *,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0.001, metavar="SECONDS", help="Simulated seconds; default: one round.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed, another run; 1 if it is not given.")] = None,
    steps: Annotated[bool, typer.Option("--steps", help="A line for every step of every partition.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line, for machines.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Say which invariants broke; exit code 1 if one did.")] = False,
    swarm: Annotated[
        bool,
        typer.Option("--swarm", help="Random runs for --for real seconds, every step checked; with --seed, that run."),
    ] = False,
    preset: Annotated[str, typer.Option(help="The version of Kafka that a swarm plays.")] = NEWEST,
    presets: Annotated[bool, typer.Option("--presets", help="Print in what the versions differ.")] = False,
) -> None:
    """Play a scenario in the model of a Kafka cluster: what happens to leaders and ISRs, and the true cause of it."""
    console = Console(highlight=False)
    if presets:
        print_presets(console)
    elif swarm:
        run_swarm(console, seed, seconds, preset)
    elif scenario is None:
        _list(console)
    else:
        told: Timeline = JsonLines() if as_json else Lines(console)
        _play(scenario, told, seed=1 if seed is None else seed, seconds=seconds, steps=steps or as_json, check=check)


def _play(scenario: str, told: Timeline, *, seed: int, seconds: float | None, steps: bool, check: bool) -> None:
    played = load_scenario(scenario)
    told.begin(played, seed)
    simulation = Simulation(played, seed=seed, origin=Micros(0), watched=True)
    for entry in _entries(simulation, played.duration if seconds is None else seconds, each_step=steps):
        told.entry(entry)
    told.end(simulation, check=check)
    if check and simulation.watch is not None and simulation.watch.violations:
        raise typer.Exit(1)


def _list(console: Console) -> None:
    for path in sorted(conf_path("scenarios").glob("*.toml")):
        line = Text.assemble((f"{path.stem:26}", "bold"), load_scenario(path).description)
        console.print(line, soft_wrap=not console.is_terminal)


def _entries(simulation: Simulation, seconds: float, *, each_step: bool) -> Iterator[Entry]:
    """Play second after second, so that a long run is seen while it goes on."""
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
    """Tell which acknowledged records are gone."""
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
