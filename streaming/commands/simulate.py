"""``isrwatch simulate``: play a scenario in the model and print what happens, why, and who is to blame. No Java.

Knows scenarios and their timelines, nothing of the bus or of tables.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from streaming.contracts.identifiers import Micros
from streaming.resources import conf_path
from streaming.sources.simulated.scenario_file import load_scenario
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation
from streaming.sources.simulated.timeline import Entry, timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.sources.simulated.scenario import Scenario

_COLOURS: Final = {"fault": "magenta", "lag": "yellow", "fenced": "red", "expand": "green"}


def simulate(
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario that comes with isrwatch, or a .toml file; without one, all are listed."),
    ] = None,
    *,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0.001, metavar="SECONDS", help="Simulated seconds; default: one round.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed, another run.")] = 1,
    steps: Annotated[bool, typer.Option("--steps", help="A line for every step of every partition.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line, for machines.")] = False,
) -> None:
    """Play a scenario in the model of a Kafka cluster: what happens to leaders and ISRs, and the true cause of it."""
    if scenario is None:
        _list()
        return
    played = load_scenario(scenario)
    console = Console(highlight=False)
    if not as_json:
        console.print(Text(_heading(played, seed), style="bold"), soft_wrap=not console.is_terminal)
    for entry in _entries(played, seed, played.duration if seconds is None else seconds, each_step=steps or as_json):
        if as_json:
            typer.echo(json.dumps(_plain(entry)))
        else:
            _print(console, entry)


def _heading(scenario: Scenario, seed: int) -> str:
    partitions = sum(topic.partitions for topic in scenario.topics)
    return (
        f"{scenario.name}: {scenario.description} "
        f"({len(scenario.brokers)} brokers, {partitions} partitions, seed {seed}; times in seconds)"
    )


def _list() -> None:
    console = Console(highlight=False)
    for path in sorted(conf_path("scenarios").glob("*.toml")):
        line = Text.assemble((f"{path.stem:24}", "bold"), load_scenario(path).description)
        console.print(line, soft_wrap=not console.is_terminal)


def _entries(scenario: Scenario, seed: int, seconds: float, *, each_step: bool) -> Iterator[Entry]:
    """Play second after second, so that a long run is seen while it goes on."""
    simulation = Simulation(scenario, seed=seed, origin=Micros(0))
    simulation.play(WARM_UP_MS - 1, lambda: None)
    simulation.cluster.take_commits()
    end = WARM_UP_MS + round(seconds * 1_000)
    for until in (*range(WARM_UP_MS, end, 1_000), end):
        simulation.play(until, lambda: None)
        entries = [Entry(at, "fault", fault.sentence()) for at, fault in simulation.take_faults()]
        entries += timeline(simulation.cluster.take_commits(), each_step=each_step)
        yield from sorted(entries, key=lambda entry: entry.at)


def _plain(entry: Entry) -> dict[str, Any]:
    return entry._asdict() | {"at": _seconds(entry)}


def _seconds(entry: Entry) -> float:
    return (entry.at - WARM_UP_MS) / 1_000


def _print(console: Console, entry: Entry) -> None:
    cause = f"  [{entry.cause}]" if entry.cause else ""
    colour = _COLOURS.get(entry.cause or entry.subject, "")
    line = Text.assemble(
        (f"{_seconds(entry):9.3f}  ", "dim"), (f"{entry.subject:16} {entry.what}", colour), (cause, colour)
    )
    console.print(line, soft_wrap=not console.is_terminal)
