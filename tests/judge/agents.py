"""What brokers' agents say in a play of slow brokers: drawn by chance, as the response times are.

Each counts produce requests and the mean of how long an append took since its broker started; it is scraped every 15
seconds, as by default. Some do not answer for a while, or never, and some brokers serve few requests. The product
itself takes the scrapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from streaming.changes.advice.slow_brokers import SpeedSample
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.sources.broker_metrics import AppendTimes

SCRAPE_SECONDS: Final = 15
_STEP_SECONDS: Final = 5
_SECOND: Final = 1_000_000
_NEVER: Final = 1e9


class _Agent(NamedTuple):
    """One broker: its usual time of an append, how many it does in a second, when its agent is silent."""

    usual_ms: float
    requests: float
    silent: tuple[float, float]


class Agents:
    """The agents of a cluster, scraped as time goes on.

    Args:
        random: what everything is drawn with.
        brokers: all of them.
        usual_ms: a usual time of an append, drawn for each broker.
        slower: factor of a broker's times at a second of the play.
    """

    def __init__(
        self,
        random: Random,
        brokers: Sequence[BrokerId],
        usual_ms: Callable[[BrokerId], float],
        slower: Callable[[BrokerId, float], float] = lambda _broker, _at: 1.0,
    ) -> None:
        self._random, self._slower, self._at = random, slower, 0
        self._agents = {broker: self._drawn(usual_ms(broker)) for broker in brokers}
        self._counted = dict.fromkeys(brokers, (0.0, 0.0))
        self._times = AppendTimes(brokers)

    def _drawn(self, usual_ms: float) -> _Agent:
        chance, begin = self._random.random(), self._random.uniform(0, 500)
        silent = (0.0, _NEVER) if chance < 0.03 else (begin, begin + self._random.uniform(20, 200))
        requests = self._random.choice((0.3, 2, 20, 20, 200, 200))
        return _Agent(usual_ms, requests, silent if chance < 0.15 else (_NEVER, _NEVER))

    def said_always(self, broker: BrokerId) -> bool:
        """Return whether a broker's agent was never silent, and its broker had enough requests for a mean."""
        agent = self._agents[broker]
        return agent.silent[0] == _NEVER and agent.requests > 1

    def said(self, samples: dict[BrokerId, SpeedSample], at: float) -> dict[BrokerId, SpeedSample]:
        """Put what agents said until a second of the play beside the other signals; one that is away starts anew."""
        while self._at <= at:
            for broker in self._agents:
                self._work(broker, is_up=broker in samples)
            self._at += _STEP_SECONDS
        newest = self._times.newest(Micros(round((at + 1) * _SECOND)))
        return {broker: sample._replace(append_micros=newest.get(broker)) for broker, sample in samples.items()}

    def _work(self, broker: BrokerId, *, is_up: bool) -> None:
        agent, (count, total) = self._agents[broker], self._counted[broker]
        if not is_up:
            self._counted[broker] = (0.0, 0.0)
            return
        served = round(agent.requests * _STEP_SECONDS * self._random.uniform(0.5, 1.5))
        ms = agent.usual_ms * self._random.lognormvariate(0, 0.4) * self._slower(broker, self._at)
        if self._random.random() < 0.01:
            ms += self._random.uniform(20, 500)  # collects garbage, or the file system flushes
        self._counted[broker] = count, total = count + served, total + round(served * ms)
        is_silent = agent.silent[0] <= self._at <= agent.silent[1]
        if self._at % SCRAPE_SECONDS == broker % 3 * _STEP_SECONDS and not is_silent and count:
            self._times.put(broker, count, total / count, Micros((self._at + 1) * _SECOND))
