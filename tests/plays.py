"""Plays of the built-in scenarios with seed 1, made once a run and shared by its processes.

A process of xdist writes a play to the folder of its run (``tests.plugins.shared_plays``), where the others find it; a
lock for each scenario lets one process play and the others wait. Nothing is kept from one run to the next. Where faults
are put into the code (``tests.mutants``) every call plays, so that a test sees the fault and is known to run its line.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar

from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Observation
from streaming.model.controller.metadata_writer import Commit
from streaming.sources.simulated import Scenario, SimulatedSource, TraceEntry, load_scenario
from streaming.sources.simulated.simulation import WARM_UP_MS

_Given, _Kept = ParamSpec("_Given"), TypeVar("_Kept")
FOLDER: Final = "ISRWATCH_PLAYS"
"""Environment variable: the folder of the run, or :data:`APART`."""
APART: Final = "apart"
SCENARIOS: Final = sorted(path.stem for path in (Path(__file__).parents[1] / "conf" / "scenarios").glob("*.toml"))
SECOND: Final = 1_000_000
START: Final = Micros(1_700_000_000 * SECOND)
"""Wall-clock time of a scenario's time 0."""
SHARED_SECONDS: Final = 130
"""At least so many seconds are shared: one round of the longest scenario."""


class Play(NamedTuple):
    """What a scenario did in its first seconds.

    Attributes:
        scenario: what was played.
        seen: what a source told that was polled a millisecond before each second and at it; with that millisecond.
        trace: every step of every partition, from the model's states.
        commits: all of the controller, also those before time 0.
        seconds: everything before that moment is there.
    """

    scenario: Scenario
    seen: tuple[tuple[int, tuple[Observation, ...]], ...]
    trace: tuple[TraceEntry, ...]
    commits: tuple[Commit, ...]
    seconds: int

    @property
    def observations(self) -> tuple[Observation, ...]:
        """What one poll just before the end tells."""
        return tuple(each for _, observed in self.seen for each in observed)

    def until(self, seconds: int) -> Play:
        """Give the part before a second."""
        if seconds == self.seconds:
            return self
        return Play(
            self.scenario,
            tuple(polled for polled in self.seen if polled[0] < seconds * 1_000),
            tuple(entry for entry in self.trace if entry.time < START + seconds * SECOND),
            tuple(commit for commit in self.commits if commit.now < WARM_UP_MS + seconds * 1_000),
            seconds,
        )


class Plays:
    """Plays that are made once.

    Args:
        folder: where other processes find them; None for this process alone.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._plays: dict[str, Play] = {}

    def give(self, name: str, seconds: int) -> Play:
        """Give a play that has so many seconds at least."""
        known = self._plays.get(name)
        if known is None or known.seconds < seconds:
            known = self._plays[name] = fresh(name, seconds) if self._folder is None else self._shared(name, seconds)
        return known

    def _shared(self, name: str, seconds: int) -> Play:
        assert self._folder is not None
        path = self._folder / f"{name}.pickle"
        with path.with_suffix(".lock").open("w") as lock:
            flock(lock, LOCK_EX)
            known: Play | None = pickle.loads(path.read_bytes()) if path.exists() else None  # noqa: S301 - our own
            if known is None or known.seconds < seconds:
                known = fresh(name, max(seconds, SHARED_SECONDS))
                written = path.with_suffix(".new")
                written.write_bytes(pickle.dumps(known))
                written.replace(path)
        return known


def fresh(name: str, seconds: int, seed: int = 1) -> Play:
    """Play a scenario."""
    scenario = load_scenario(name)
    commits: list[Commit] = []
    source = SimulatedSource(
        scenario,
        seed=seed,
        cluster_id=ClusterId("c"),
        cluster="c",
        name="metadata_log:c",
        epoch=START,
        on_commit=commits.append,
    )
    times = [time for second in range(1_000, (seconds + 1) * 1_000, 1_000) for time in (second - 1, second)]
    seen = tuple((time, tuple(source.poll(Micros(START + time * 1_000)))) for time in (0, *times[:-1]))
    return Play(scenario, tuple(polled for polled in seen if polled[1]), source.trace(), tuple(commits), seconds)


def once(function: Callable[_Given, _Kept]) -> Callable[_Given, _Kept]:
    """Keep what a function gives, but not where each test must run for itself what it sees."""
    return function if os.environ.get(FOLDER) == APART else cache(function)


def _folder() -> Path | None:
    return Path(os.environ[FOLDER]) if "PYTEST_XDIST_WORKER" in os.environ else None


_PLAYS = None if os.environ.get(FOLDER) == APART else Plays(_folder())


def played(name: str, seconds: float | None = None) -> Play:
    """Give the first seconds of a scenario with what the model knows of them, by default one round."""
    whole = round(load_scenario(name).duration if seconds is None else seconds)
    return (fresh(name, whole) if _PLAYS is None else _PLAYS.give(name, whole)).until(whole)


def observations(name: str, seconds: float | None = None) -> tuple[Observation, ...]:
    """Give what a source tells of the first seconds of a scenario, by default of one round."""
    return played(name, seconds).observations


def polled(name: str, seconds: Iterable[int]) -> Iterator[tuple[Observation, ...]]:
    """Yield what a source tells that is polled at these seconds, from 0 on."""
    times = list(seconds)
    told: list[Observation] = []
    seen = iter(played(name, times[-1] + 1).seen)
    at, observed = next(seen, (None, ()))
    for second in times:
        while at is not None and at <= second * 1_000:
            told += observed
            at, observed = next(seen, (None, ()))
        yield tuple(told)
        told = []
