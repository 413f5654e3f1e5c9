"""Append times of brokers, by their agents: what one process scrapes and another one compares.

An agent counts the produce requests of its broker since the start, and says the mean of how long the broker's own
part of one took (RequestMetrics, LocalTimeMs): checks, and the append to its log; neither the wait in the request
queue nor the wait for followers (``acks=all``) is in it. Kafka's histogram (Yammer's) divides the sum of all by
their count, so two scrapes give the mean between them. Of two such means in turn the smaller one counts: so a short
fault, which may be in both, is not seen for longer than it lasted, nor what is slow only because its broker has just
started. Percentiles are not used: Kafka's are of the last minutes, and stay high after a fault.
"""

from __future__ import annotations

from ctypes import c_int64
from multiprocessing.sharedctypes import RawArray
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import BrokerId, Micros

if TYPE_CHECKING:
    from collections.abc import Collection

MOST_AGE: Final = 35_000_000
"""Age of a scrape, in microseconds: it counts in four rounds of ten seconds at most, too few to call a broker slow."""
LEAST_REQUESTS: Final = 10
"""The mean of fewer says little."""
_MOST_MICROS: Final = 2**31 - 1


class _Scrape(NamedTuple):
    """At a monotonic time: produce requests since the broker started, and their milliseconds together.

    ``mean_micros`` is of those since the scrape before; None of the first one.
    """

    at: Micros
    requests: float
    total_ms: float
    mean_micros: int | None = None


class AppendTimes:
    """The newest time of each broker, in memory that processes share, without a lock: one of them may be killed.

    Args:
        brokers: those with an agent.
        more: the most other brokers, which only the process knows that puts times of theirs.
    """

    def __init__(self, brokers: Collection[BrokerId], more: int = 0) -> None:
        self._most = len(brokers) + more
        self._places = {broker: place for place, broker in enumerate(brokers)}
        self._brokers = RawArray(c_int64, [*brokers, *[0] * max(1, more)])
        self._micros = RawArray(c_int64, len(self._brokers))
        self._measured_at = RawArray(c_int64, len(self._brokers))
        self._scrapes: dict[BrokerId, _Scrape] = {}

    def __getstate__(self) -> dict[str, object]:
        """Give another process what it reads; scrapes may come in meanwhile."""
        return {**self.__dict__, "_scrapes": {}}

    def put(self, broker: BrokerId, requests: float | None, mean_ms: float | None, at: Micros) -> None:
        """Take what an agent says; None where it does not. Only one thread of one process does that for a broker."""
        if requests is None or mean_ms is None:
            return
        before, now = self._scrapes.get(broker), _Scrape(at, requests, requests * mean_ms)
        if before is None or at - before.at > MOST_AGE or requests < before.requests:
            self._scrapes[broker] = now
            return
        count = requests - before.requests
        if count < LEAST_REQUESTS:
            return
        mean = min(_MOST_MICROS, max(0, round(1000 * (now.total_ms - before.total_ms) / count)))
        self._scrapes[broker] = now._replace(mean_micros=mean)
        if before.mean_micros is not None and (place := self._place(broker)) is not None:
            self._micros[place] = min(mean, before.mean_micros)
            self._measured_at[place] = at  # last: who reads in between takes a new time for an old one

    def _place(self, broker: BrokerId) -> int | None:
        """Return the place of a broker, a new one for one that has none; None where there are too many."""
        if broker not in self._places and len(self._places) < self._most:
            self._brokers[len(self._places)] = broker
            self._places[broker] = len(self._places)
        return self._places.get(broker)

    def newest(self, at: Micros) -> dict[BrokerId, int]:
        """Return the times in microseconds that are recent at a monotonic time."""
        return {
            BrokerId(self._brokers[place]): self._micros[place]
            for place, measured_at in enumerate(self._measured_at)
            if measured_at and at - measured_at <= MOST_AGE
        }
