"""Output of ``isrwatch simulate``: aligned lines, or JSON objects; and the table of versions."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Protocol

import typer
from rich.table import Table
from rich.text import Text

from streaming.model import constants
from streaming.model.cluster.descriptions import hanging
from streaming.model.invariants import groups
from streaming.model.invariants.watch import INVARIANTS, OTHERS
from streaming.sources.simulated.simulation import WARM_UP_MS
from streaming.word_wrap import print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from streaming.sources.simulated.scenario import Scenario
    from streaming.sources.simulated.simulation import Simulation
    from streaming.sources.simulated.timeline import Entry

_COLOURS: Final = {
    "fault": "magenta",
    "loss": "bold red",
    "fenced": "red",
    "unclean_election": "bold red",
    "last_known_leader": "bold red",
    "lag": "yellow",
    "leader_stall": "yellow",
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

    def __init__(self, console: Console) -> None:
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
                yield f"{where}: {waits}, {led.last_stable_offset_lag} behind, for a transaction that nobody ends"


class JsonLines:
    """One JSON object per line: the scenario with its truth, then one per entry, then the end."""

    def begin(self, scenario: Scenario, seed: int) -> None:
        """Print the scenario, with what a monitor is expected to report."""
        self._print(
            {
                "kind": "scenario",
                "scenario": scenario.name,
                "seed": seed,
                "brokers": scenario.brokers,
                "faults": [
                    {name: value for name, value in asdict(fault).items() if value is not None}
                    for fault in scenario.faults
                ],
                "truth": asdict(scenario.truth),
            }
        )

    def entry(self, entry: Entry) -> None:
        """Print one entry."""
        fields = entry._asdict() | {"at": seconds(entry.at), "after": entry.after and entry.after._asdict()}
        self._print({"kind": "entry"} | {name: value for name, value in fields.items() if value not in ("", None)})

    def end(self, simulation: Simulation, *, check: bool) -> None:
        """Print the state of every partition, and violated invariants."""
        cluster = simulation.cluster
        states = {
            f"{simulation.topic_name(key.topic_id)}-{key.partition}": state._asdict()
            for key, state in cluster.controller.registry.partitions.items()
        }
        end: dict[str, Any] = {"kind": "end", "refused": cluster.refused, "partitions": states}
        if check and simulation.watch is not None:
            broken = (*simulation.watch.violations, *simulation.group_violations.values())
            end["violations"] = [str(violation) for violation in broken]
        self._print(end)

    @staticmethod
    def _print(value: dict[str, Any]) -> None:
        typer.echo(json.dumps(value))


def print_presets(console: Console) -> None:
    """Print the differences between versions; an empty cell means the value of the newest version."""
    heading, *rows = constants.table()
    if not console.is_terminal:
        for row in (heading, *rows):
            typer.echo("\t".join(row).rstrip())
        return
    printed = Table(*heading, box=None, header_style="bold", title_justify="left")
    for row in rows:
        printed.add_row(*row)
    console.print(printed)
