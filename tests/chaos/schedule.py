"""One run, drawn from a seed: a scenario, when which harm happens, how the job is started each time."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.chaos.harms import HARMS

SCENARIOS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "scenarios").glob("*.toml"))
MOST_HARMS = 4


class ChaosAct(NamedTuple):
    """A harm, after some pieces of the history and a pause."""

    pieces: int
    seconds: float
    harm: str


class JobStart(NamedTuple):
    """How the job is started."""

    tasks: int
    batch_bytes: int
    trigger_seconds: float
    projection_seconds: float


class Schedule(NamedTuple):
    """One run."""

    seed: int
    scenario: str
    acts: tuple[ChaosAct, ...]
    starts: tuple[JobStart, ...]

    def __str__(self) -> str:
        acts = "".join(f"\n  {act.pieces} pieces, {act.seconds:.3f} s, {act.harm}" for act in self.acts)
        starts = "".join(f"\n  start {number}: {start}" for number, start in enumerate(self.starts))
        return f"seed {self.seed}, scenario {self.scenario}{acts}{starts}"


def drawn(seed: int, harms: tuple[str, ...] = ()) -> Schedule:
    """Draw a run; if ``harms`` are given, these happen in this order."""
    dice = Random(seed)
    chosen = harms or tuple(dice.choice(sorted(HARMS)) for _ in range(dice.randint(2, MOST_HARMS)))
    return Schedule(
        seed=seed,
        scenario=dice.choice(SCENARIOS),
        acts=tuple(ChaosAct(dice.randint(2, 40 // len(chosen)), dice.random() * 0.4, harm) for harm in chosen),
        starts=tuple(_start(dice) for _ in range(2 * len(chosen) + 1)),
    )


def _start(dice: Random) -> JobStart:
    return JobStart(
        tasks=dice.choice((1, 2, 4)),
        batch_bytes=dice.choice((2_000, 20_000, 1 << 25)),
        trigger_seconds=dice.choice((0.0, 0.0, 0.2, 1.0)),
        projection_seconds=dice.choice((0.05, 0.3, 1.0)),
    )
