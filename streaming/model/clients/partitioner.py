"""Choice of the partition for a record. Knows keys, counts and queue lengths; no records, no brokers.

With a key it is a hash, so that equal keys meet in one partition and keep their order; without one, it depends on the
version: record by record in turn (before 2.4), one partition a batch (KIP-480), or one partition until it has had
its share, rather one that is not behind (KIP-794). Random numbers come from the caller.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

Draw = Callable[[], int]  # a whole number in 0..2**31 - 1, equally distributed

_INT: Final = 0xFFFF_FFFF
_POSITIVE: Final = 0x7FFF_FFFF
_SEED: Final = 0x9747_B28C
_MULTIPLIER: Final = 0x5BD1_E995


def murmur2(data: bytes) -> int:
    """Hash bytes as Kafka's clients do (``Utils.murmur2``); a signed number of 32 bits.

    >>> murmur2(b"foobar")
    -790332482
    """
    aligned = len(data) & ~3
    h = _SEED ^ len(data)
    for start in range(0, aligned, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _INT
        k = (k ^ k >> 24) * _MULTIPLIER & _INT
        h = h * _MULTIPLIER & _INT ^ k
    if aligned < len(data):
        h = (h ^ int.from_bytes(data[aligned:], "little")) * _MULTIPLIER & _INT
    h = (h ^ h >> 13) * _MULTIPLIER & _INT
    h ^= h >> 15
    return h - 2 * (h & ~_POSITIVE)


def partition_for_key(key: bytes, partitions: int) -> int:
    """Give the partition of a key: a property of the key and the count, so adding partitions moves keys.

    >>> partition_for_key(b"foobar", 12)
    6
    """
    return (murmur2(key) & _POSITIVE) % partitions


class TopicView(NamedTuple):
    """Topic in a producer's metadata: the number of partitions, and those that have a leader."""

    partitions: int
    available: tuple[int, ...]

    def pick(self, number: int) -> int:
        """Turn a number into a partition, one with a leader if there is any."""
        return self.available[number % len(self.available)] if self.available else number % self.partitions


class Partitioner(Protocol):
    """Chooses for the records of one topic that have no key."""

    def partition(self, topic: TopicView) -> int:
        """Give the partition of the next record."""

    def appended(self, topic: TopicView, size: int, *, batch_complete: bool) -> None:
        """Learn that a record of ``size`` went where it was sent; ``batch_complete``: no other fits into its batch."""


class RoundRobin:
    """Partitions take turns, record by record (``DefaultPartitioner`` before 2.4): fair, and batches stay small."""

    def __init__(self, draw: Draw) -> None:
        self._counter = draw()

    def partition(self, topic: TopicView) -> int:
        """Return the next partition, whether or not the record is sent."""
        number, self._counter = self._counter, self._counter + 1 & _POSITIVE
        return topic.pick(number)

    def appended(self, topic: TopicView, size: int, *, batch_complete: bool) -> None:
        """Nothing follows from it."""


class Sticky:
    """One partition a batch, then another one (KIP-480; 2.4 to 3.2).

    Its flaw, which KIP-794 corrects: a slow partition completes its batches late and full, and so draws more records.
    """

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._current: int | None = None

    def partition(self, topic: TopicView) -> int:
        """Give the current partition."""
        if self._current is None:
            self._current = topic.pick(self._draw())
        return self._current

    def appended(self, topic: TopicView, size: int, *, batch_complete: bool) -> None:  # noqa: ARG002 - one protocol
        """Move on after each batch, to a different partition if two are available."""
        if not batch_complete:
            return
        before = self._current
        self._current = topic.pick(self._draw())
        while self._current == before and len(topic.available) > 1:
            self._current = topic.pick(self._draw())


class AdaptiveSticky:
    """One partition until it has had its share, then any, the emptier its queue the likelier (KIP-794; since 3.3).

    Args:
        draw: random numbers.
        sticky_batch_size: the share, in the unit of the sizes; Kafka takes ``batch.size``.
    """

    def __init__(self, draw: Draw, sticky_batch_size: int) -> None:
        self._draw = draw
        self._share = sticky_batch_size
        self._produced = 0
        self._current: int | None = None
        self._candidates: tuple[int, ...] = ()
        self._cumulated: tuple[int, ...] = ()

    def partition(self, topic: TopicView) -> int:
        """Give the current partition."""
        if self._current is None:
            self._current = self._next(topic)
        return self._current

    def appended(self, topic: TopicView, size: int, *, batch_complete: bool) -> None:
        """Move on after a share, at the end of a batch if one ends before the second share does."""
        self._produced += size
        if self._produced >= (self._share if batch_complete else 2 * self._share):
            self._produced, self._current = 0, self._next(topic)

    def queued(self, topic: TopicView, batches: Mapping[int, int]) -> None:
        """Learn how many batches wait for each partition that may be chosen.

        Those that are missing are not chosen: no leader, or one that has not answered for too long. Where all queues
        are alike and none is missing, partitions are drawn uniformly.
        """
        lengths = tuple(batches.values())
        alike = len(set(lengths)) <= 1 and len(lengths) == topic.partitions
        if not lengths or topic.partitions == 1 or alike:
            self._candidates = self._cumulated = ()
            return
        self._candidates = tuple(batches)
        self._cumulated = tuple(accumulate(max(lengths) + 1 - length for length in lengths))

    def _next(self, topic: TopicView) -> int:
        number = self._draw()
        if not self._candidates:
            return topic.pick(number)
        return self._candidates[bisect_right(self._cumulated, number % self._cumulated[-1])]


class PartitionerKind(StrEnum):
    """Partitioner by which producers of a version spread records without a key."""

    ROUND_ROBIN = "round_robin"
    STICKY = "sticky"
    ADAPTIVE_STICKY = "adaptive_sticky"

    def start(self, draw: Draw, sticky_batch_size: int) -> Partitioner:
        """Give a new partitioner for one topic."""
        if self is PartitionerKind.ROUND_ROBIN:
            return RoundRobin(draw)
        return Sticky(draw) if self is PartitionerKind.STICKY else AdaptiveSticky(draw, sticky_batch_size)
