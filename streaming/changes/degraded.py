"""Partitions that are degraded because of an incident: which brokers they lack, how many they are, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

TopicPartition = tuple[str, int]
UNDER_MIN_ISR: Final = 1
OFFLINE: Final = 2
"""Places in ``DegradedPartition.states``."""


@dataclass(slots=True)
class DegradedCount:
    """How many partitions are in a degraded state: now, at most, for how long in sum, and how long there were any.

    The order of the fields is that of the stored document (``incident_document``).
    """

    now: int = 0
    peak: int = 0
    partition_micros: int = 0
    wall_micros: int = 0
    at: int = 0

    def move(self, by: int, moment: int) -> None:
        """Count partitions in or out."""
        self.advance(moment)
        self.now += by
        self.peak = max(self.peak, self.now)

    def advance(self, moment: int) -> None:
        """Advance to a moment."""
        passed = max(0, moment - self.at) if self.at else 0
        self.partition_micros += passed * self.now
        self.wall_micros += passed if self.now else 0
        self.at = max(self.at, moment)

    def skip(self, micros: int) -> None:
        """Count nothing for a time before the next moment."""
        self.at += micros if self.at else 0

    def add(self, other: DegradedCount) -> None:
        """Add another one's times. Peaks at different times do not add up, and a partition may be in both."""
        self.partition_micros += other.partition_micros
        self.wall_micros += other.wall_micros
        self.peak = max(self.peak, other.peak)


@dataclass(frozen=True, slots=True)
class DegradedPartition:
    """A partition that is degraded because of an incident: the missing brokers, and its states."""

    missing: frozenset[int]
    states: tuple[bool, bool, bool] = (False, False, False)
    """Under-replicated, under min ISR, offline."""


HEALTHY: Final = DegradedPartition(frozenset())


@lru_cache(maxsize=4096)
def still_missing(
    missing: frozenset[int], gone: tuple[int, ...], replicas: tuple[int, ...], back: tuple[int, ...]
) -> frozenset[int]:
    """Return the brokers that are missing now. Cached: in a storm thousands of partitions give the same few answers."""
    return (missing | frozenset(gone)) & frozenset(replicas) - frozenset(back)
