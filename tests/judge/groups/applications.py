"""Applications of the judge's groups: what each reads and commits, and what happens to it. Pure, but for its random."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.judge.groups.logs import Log, LogKind

AWAY: Final = float("-inf")


class Protocol(StrEnum):
    """How an application takes part; ``assign``: without membership, it only commits."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    ASSIGN = "assign"


class Reset(StrEnum):
    """What a consumer does where its offset is out of range (``auto.offset.reset``)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@dataclass(eq=False)
class Reading:
    """One partition that a group has committed, or that an application reads.

    Attributes:
        speed: records per second.
        committed: of a share group, its start offset.
        is_subscribed: the application reads it, or wants to.
        is_paused: it holds it, and reads nothing of it.
        commits_records: it commits the offset behind the last record, not its position.
        moved_at: when the committed offset moved last, forward.
        left_at: since when it is not read any more.
    """

    log: Log
    speed: float
    every: float
    committed: int | None = None
    position: int = 0
    is_subscribed: bool = True
    is_paused: bool = False
    commits: bool = True
    commits_records: bool = False
    moved_at: float = AWAY
    left_at: float = AWAY
    _committed_at: float = 0.0

    def step(self, now: float, seconds: float, reset: Reset) -> None:
        """Read and commit for so many seconds."""
        log = self.log
        if not log.start <= self.position <= log.end:
            if reset is Reset.NONE:
                return
            self.position = log.end if reset is Reset.LATEST else log.start
        self.position = min(max(self.position, log.stable), self.position + round(self.speed * seconds + 0.5))
        if self.commits and now - self._committed_at >= self.every:
            self.commit(now)

    def commit(self, now: float) -> None:
        offset = self.log.behind_last_record(self.position) if self.commits_records else self.position
        if self.committed is None or offset > self.committed:
            self.moved_at = now
        self.committed, self._committed_at = offset, now
        if self.log.kind is LogKind.PURGED:
            self.log.delete(offset)

    def set(self, offset: int) -> None:
        """Set the offset from outside, or by a seek that is committed: no sign of a reader."""
        self.position = self.committed = offset


@dataclass(eq=False)
class Application:
    """A group: its partitions by name, and the state of its processes.

    Attributes:
        is_up: its processes run.
        exists: Kafka has the group.
        rebalances_until: no partition has an owner until then.
        down_since: since when no process runs.
    """

    name: str
    protocol: Protocol
    readings: dict[str, Reading]
    members: int = 1
    reset: Reset = Reset.EARLIEST
    is_up: bool = True
    exists: bool = True
    rebalances_until: float = AWAY
    down_since: float = AWAY
    busy_until: float = 0.0
    gone_since: float = AWAY

    @property
    def has_members(self) -> bool:
        return self.is_up and self.protocol is not Protocol.ASSIGN

    def step(self, now: float, seconds: float) -> None:
        if not self.exists or not self.is_up or now < self.rebalances_until:
            return
        for reading in self.readings.values():
            if reading.is_subscribed and not reading.is_paused:
                reading.step(now, seconds, self.reset)

    def stop(self, now: float) -> None:
        self.is_up, self.down_since = False, now

    def start(self, now: float, rebalance: float = 20.0) -> None:
        """Start it; it goes on where it has committed."""
        self.is_up, self.exists, self.rebalances_until = True, True, now + rebalance
        for reading in self.readings.values():
            reading.position = reading.log.start if reading.committed is None else reading.committed

    def delete(self, now: float) -> None:
        """Delete the group with its offsets."""
        self.exists, self.gone_since = False, now
        for reading in self.readings.values():
            reading.committed, reading.moved_at = None, AWAY

    def owners(self, now: float) -> Iterator[tuple[Reading, str]]:
        """Yield the partitions that a member owns."""
        if self.exists and self.has_members and now >= self.rebalances_until:
            subscribed = (each for each in self.readings.values() if each.is_subscribed)
            yield from ((each, f"{self.name}-{number % self.members}") for number, each in enumerate(subscribed))

    def state(self, now: float) -> str:
        if not self.has_members:
            return "Empty"
        return "PreparingRebalance" if now < self.rebalances_until else "Stable"
