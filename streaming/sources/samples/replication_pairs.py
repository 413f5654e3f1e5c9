"""Pairs of a leader and a follower that are behind, from one round of log positions to the next. Pure.

A follower that has not what its leader had a round before is behind, whatever is written meanwhile. What only catches
up, because its broker was away or a reassignment added it, is not counted until it has been in the ISR.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from streaming.contracts.identifiers import BrokerId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    ByTopic = Mapping[str, Mapping[int, int]]
    """Offsets by topic and partition."""

Pair = tuple[BrokerId, BrokerId]
"""Leader and follower."""


class ReplicaPlacement(Protocol):
    """Placement of a partition's replicas."""

    @property
    def replicas(self) -> tuple[BrokerId, ...]:
        """All of them."""

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """Those in sync."""

    @property
    def leader(self) -> BrokerId:
        """The leader."""


class PairCounts(NamedTuple):
    """One broker in one round; see ``contracts.samples.BrokerSpeedObserved``."""

    followed_leaders: int = 0
    followed_leaders_behind: int = 0
    followers: int = 0
    followers_behind: int = 0
    replicas_behind: int = 0
    replicas_out_of_isr: int = 0


class ReplicationPairs:
    """Compares each round with the one before; of the first nothing is known."""

    def __init__(self) -> None:
        self._brokers: frozenset[BrokerId] = frozenset()
        self._topics: Mapping[str, Mapping[int, ReplicaPlacement]] = {}
        self._ends: ByTopic = {}
        self._removed: set[tuple[str, int, BrokerId]] = set()

    def take(
        self,
        brokers: Collection[BrokerId],
        topics: Mapping[str, Mapping[int, ReplicaPlacement]],
        ends: ByTopic,
        follower_ends: Mapping[BrokerId, ByTopic],
    ) -> dict[BrokerId, PairCounts]:
        """Count the pairs of each broker that is alive, by log end offsets of leaders and followers.

        Those of followers are read a moment later; one that did not respond is left out.
        """
        alive = frozenset(brokers)
        self._removed = set(self._removed_now(alive, topics))
        behind = Counter[Pair]()
        replicas_behind = Counter[BrokerId]()
        for pair, is_behind in self._moving(topics, ends, follower_ends):
            behind[pair] += is_behind
            replicas_behind[pair[1]] += is_behind
        out = Counter[BrokerId]()
        for topic, number, follower in self._removed:
            if number in follower_ends.get(follower, {}).get(topic, {}):  # else its directory has failed, or it is hung
                behind[topics[topic][number].leader, follower] += 1
                out[follower] += 1
        self._brokers, self._topics, self._ends = alive, topics, ends
        followed = Counter(follower for _, follower in behind)
        followed_behind = Counter(follower for (_, follower), count in behind.items() if count)
        following = Counter(leader for leader, _ in behind)
        following_behind = Counter(leader for (leader, _), count in behind.items() if count)
        counts = followed, followed_behind, following, following_behind, replicas_behind, out
        return {broker: PairCounts(*(each[broker] for each in counts)) for broker in alive}

    def _removed_now(
        self, alive: frozenset[BrokerId], topics: Mapping[str, Mapping[int, ReplicaPlacement]]
    ) -> Iterator[tuple[str, int, BrokerId]]:
        """Find the replicas that are out of the ISR now, and were in it while their broker was alive."""
        for topic, parts in topics.items():
            for number, placed in parts.items():
                if len(placed.isr) == len(placed.replicas) or placed.leader not in alive:
                    continue
                was = self._topics.get(topic, {}).get(number)
                for follower in alive.intersection(placed.replicas).difference(placed.isr):
                    key = topic, number, follower
                    was_in = was is not None and follower in was.isr and follower in self._brokers
                    if was_in or key in self._removed:
                        yield key

    def _moving(
        self,
        topics: Mapping[str, Mapping[int, ReplicaPlacement]],
        ends: ByTopic,
        follower_ends: Mapping[BrokerId, ByTopic],
    ) -> Iterator[tuple[Pair, bool]]:
        """Give each in-sync follower of a partition that moved, or that it is behind of, and whether it is behind."""
        for topic, now in ends.items():
            before, parts = self._ends.get(topic), topics.get(topic)
            if before is None or parts is None:
                continue
            of_topic = {broker: by_topic[topic] for broker, by_topic in follower_ends.items() if topic in by_topic}
            for number, end in now.items():
                placed, then = parts.get(number), before.get(number)
                if placed is None or then is None or placed.leader < 0:
                    continue
                for follower in placed.isr:
                    at = of_topic[follower].get(number) if follower in of_topic else None
                    if follower != placed.leader and at is not None and (at < then or end > then):
                        yield (placed.leader, follower), at < then
