"""The judge's groups as they live beside a cluster of the model: their truth, what is seen of it, and what is due."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from streaming.contracts.identifiers import BrokerId
from streaming.contracts.observations import Observation
from streaming.sources.simulated.simulation import Simulation
from tests.judge.groups.plans import Act, Plans, made_groups, made_logs
from tests.judge.groups.rule import Episode, Watch
from tests.judge.groups.seen import GroupsCollector, Led
from tests.judge.quiet_days import HOUR, TOPICS

STEP_SECONDS: Final = 10
ROUND_SECONDS: Final = 30
_BETWEEN: Final = 1.0
"""Between the questions to leaders and to coordinators."""
_RESTARTS: Final = 1 / 600
_NOBODY: Final = BrokerId(-1)
_OFFSETS: Final = "__consumer_offsets"


class World:
    """Groups, logs and the collector; lives on from day to day."""

    def __init__(self, seed: str) -> None:
        self.logs = made_logs()
        self.groups = made_groups(self.logs)
        self.watch, self.collector = Watch(), GroupsCollector(Random(f"{seed} seen"))
        self._acts: list[Act] = []
        self._random = Random(f"{seed} groups")
        self.plans = Plans(self._random, self.logs, self.groups)

    def plan(self, begin: float, hours: int) -> None:
        """Plan so many hours."""
        self.plans.planted.clear()
        self.plans.done.clear()
        for hour in range(hours):
            self._acts += self.plans.hour(begin + hour * HOUR, is_last=hour >= hours - 2)
        self._acts.sort(key=lambda each: each[0])

    def live(self, begin: float, end: float, simulation: Simulation) -> list[Observation]:
        """Live until a second; give what a collector sees at its end, after ``ROUND_SECONDS`` at most."""
        seconds = begin
        while seconds + STEP_SECONDS < end:
            seconds += STEP_SECONDS
            self._step(seconds, STEP_SECONDS)
        self._step(end - _BETWEEN, end - _BETWEEN - seconds)
        led = led_by(simulation)
        positions = self.collector.positions(end - _BETWEEN, led, self.logs.values())
        self._step(end, _BETWEEN)
        if self._random.random() < _RESTARTS:
            self.collector.restart(end, self._random.uniform(5, 120))
        seen = self.collector.round(end, led, self.groups, positions)
        for group in self.groups:
            if (parts := seen.said.get(group.name)) is not None:
                self.watch.answered(end, group, {part: positions.of[part][0] for part in parts})
            elif group.name in seen.gone:
                self.watch.gone(end, group)
        return seen.observations

    def _step(self, now: float, seconds: float) -> None:
        starts = {part: log.start for part, log in self.logs.items()}
        for log in self.logs.values():
            log.step(now, seconds, self._random)
        while self._acts and self._acts[0][0] <= now:
            self._acts.pop(0)[1](now)
        for group in self.groups:
            self.watch.follow(now, group, starts)  # what is deleted before it reads on
            group.step(now, seconds)
            self.watch.follow(now, group, {part: log.start for part, log in self.logs.items()})

    def episodes(self, now: float) -> Sequence[Episode]:
        """Give what was wrong in the last hours."""
        self.watch.forget(now)
        return list(self.watch.episodes(now))


def led_by(simulation: Simulation) -> Led:
    """Look at the model: who responds, and leads what."""
    registry, ids = simulation.cluster.controller.registry, simulation.topic_ids
    leaders: dict[str, dict[int, BrokerId]] = {}
    names = {ids[name]: name for name in (_OFFSETS, TOPICS[0])}
    for key, state in registry.partitions.items():
        if (name := names.get(key.topic_id)) is not None:
            leaders.setdefault(name, {})[key.partition] = state.leader
    offsets, topics = ([leaders[name][number] for number in sorted(leaders[name])] for name in (_OFFSETS, TOPICS[0]))
    return Led(frozenset(broker.broker for broker in simulation.cluster.reachable()), offsets, topics)
