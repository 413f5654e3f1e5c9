"""The network of the simulated cluster: random latency, links that keep their order, holds and slow links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

    from streaming.contracts.identifiers import BrokerId


LATENCY_MS: Final = (1, 4)


class SimulatedNetwork:
    """Implements ``streaming.model.cluster.cluster.Network``.

    Args:
        random: where latencies come from, and nothing else does.
        latency_ms: shortest and longest way of a message.
    """

    def __init__(self, random: Random, latency_ms: tuple[int, int] = LATENCY_MS) -> None:
        self._random = random
        self._latency_ms = latency_ms
        self._last_arrival: dict[tuple[BrokerId, BrokerId], int] = {}
        self._held: set[tuple[BrokerId, BrokerId]] = set()
        self._records_per_second: dict[tuple[BrokerId, BrokerId], int] = {}

    def arrival(self, now: int, sender: BrokerId, receiver: BrokerId, records: int) -> int | None:
        """Give the time of arrival in ms; a message never overtakes another on the same link. None: held."""
        link = (sender, receiver)
        if link in self._held:
            return None
        at = now + self._random.randint(*self._latency_ms)
        if link in self._records_per_second:
            at += records * 1_000 // self._records_per_second[link]
        at = max(at, self._last_arrival.get(link, 0))
        self._last_arrival[link] = at
        return at

    def hold(self, link: tuple[BrokerId, BrokerId]) -> None:
        """Nothing passes this link any more; nothing is lost either."""
        self._held.add(link)

    def slow(self, link: tuple[BrokerId, BrokerId], records_per_second: int) -> None:
        """Records pass this link at this rate only."""
        self._records_per_second[link] = records_per_second

    def release(self, link: tuple[BrokerId, BrokerId]) -> None:
        """The link is itself again."""
        self._held.discard(link)
        self._last_arrival.pop(link, None)
        self._records_per_second.pop(link, None)
