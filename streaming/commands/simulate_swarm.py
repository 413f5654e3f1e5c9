"""``isrwatch simulate --swarm`` checks random runs against the invariants; ``--presets`` compares versions of Kafka."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

import typer
from rich.table import Table
from rich.text import Text

from streaming.errors import ConfigurationError
from streaming.model import presets
from streaming.sources.simulated.swarm import NAMES, run_swarm
from streaming.word_wrap import print_wrapped

if TYPE_CHECKING:
    from rich.console import Console

BUDGET_SECONDS: Final = 60.0


def swarm(console: Console, seed: int | None, seconds: float | None, preset: str) -> None:
    """Simulate random runs until the time is over or one violates an invariant; with a seed, only that run.

    Raises:
        ConfigurationError: there is no such preset.
    """
    if preset not in presets.PRESETS:
        raise ConfigurationError(f"--preset is {preset!r}; use one of {', '.join(presets.PRESETS)}")
    seeds = count(1) if seed is None else (seed,)
    report = run_swarm(
        seeds, constants=presets.PRESETS[preset], budget_s=BUDGET_SECONDS if seconds is None else seconds
    )
    for failure in report.failures:
        print_wrapped(console, Text(f"{failure} --preset {preset}", style="bold red"))
    simulated = f"{report.simulated_ms / 1_000:.0f} simulated seconds, {report.acts} faults"
    held = "no violation" if not report.failures else "violated"
    print_wrapped(console, Text(f"{report.runs} runs, {simulated}, {len(NAMES)} invariants after every step: {held}"))
    if report.failures:
        raise typer.Exit(1)


def print_presets(console: Console) -> None:
    """Print the differences between versions; an empty cell means the value of the newest version."""
    heading, *rows = presets.table()
    if not console.is_terminal:
        for row in (heading, *rows):
            typer.echo("\t".join(row).rstrip())
        return
    printed = Table(*heading, box=None, header_style="bold", title_justify="left")
    for row in rows:
        printed.add_row(*row)
    console.print(printed)
