"""Partitions of the judge's groups as logs: what is appended, what of it is a record, what is deleted, truncated.

Of five kinds: plain; transactional, with markers, aborted records, and now and then a transaction that stays open for
long; compacted, of which most offsets are no records any more; purged, whose group deletes what it has committed, as
Kafka Streams does with repartition topics; sparse, to which a record comes every two hours. Pure, but for its random.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final

from tests.judge.quiet_days import HOUR

CHECK_SECONDS: Final = 300.0
"""So often brokers delete what is kept no longer, and clean (``log.retention.check.interval.ms``)."""
_SPARSE: Final = 2 * HOUR
_BEGINS: Final = 1 / 20, 1 / 2
"""How often a transaction begins within ten seconds, in slow partitions and in busy ones."""
_LONG_SHARE: Final = 1 / 40
_ABORTED_SHARE: Final = 1 / 4
_CLEANED: Final = 10
"""Of so many offsets compaction leaves one."""
_REMEMBERED: Final = 26 * HOUR // 30


class LogKind(StrEnum):
    PLAIN = "plain"
    TRANSACTIONAL = "transactional"
    COMPACTED = "compacted"
    PURGED = "purged"
    SPARSE = "sparse"


@dataclass
class Transaction:
    """From which offset on, until when, and whether it is aborted."""

    begin: int
    until: float
    is_aborted: bool


@dataclass(eq=False)
class Log:
    """A partition of a topic.

    Attributes:
        rate: records per second.
        kept: so many offsets, None for all.
        start, end, stable: log start, high watermark, last stable offset.
        gaps: offsets that are no records, in order.
        ends: high watermarks of the last day, by second.
        transaction: the one that is open.
        committed_from: when the last transaction began, if it was committed.
    """

    topic: str
    number: int
    kind: LogKind
    rate: float
    kept: int | None = None
    start: int = 0
    end: int = 0
    stable: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    ends: deque[tuple[float, int]] = field(default_factory=lambda: deque([(0.0, 0)], _REMEMBERED))
    transaction: Transaction | None = None
    committed_from: float | None = None
    _began: float = 0.0
    _rest: float = 0.0
    _checked: float = 0.0
    _cleaned: int = 0

    def __post_init__(self) -> None:
        """Let logs be checked one after the other."""
        self._checked = -37.0 * self.number

    @property
    def part(self) -> str:
        return f"{self.topic}-{self.number}"

    def step(self, now: float, seconds: float, random: Random) -> int:
        """Let so many seconds pass; return how many offsets were deleted."""
        if self.kind is LogKind.TRANSACTIONAL:
            self._transact(now, random)
        else:
            rate = 1 / _SPARSE if self.kind is LogKind.SPARSE else self.rate
            self._rest += rate * seconds
            count = int(self._rest)
            self._rest -= count
            self.end += count
            self.stable = self.end
        if now - self.ends[-1][0] >= 30:
            self.ends.append((now, self.end))
        if now - self._checked < CHECK_SECONDS:
            return 0
        self._checked = now
        if self.kind is LogKind.COMPACTED:
            self._clean()
        return 0 if self.kept is None else self.delete(self.end - self.kept)

    def _transact(self, now: float, random: Random) -> None:
        if self.transaction is None:
            if random.random() < _BEGINS[self.number % 2]:
                lasts = random.uniform(600, 1_800) if random.random() < _LONG_SHARE else random.uniform(1, 40)
                self.transaction = Transaction(self.end, now + lasts, random.random() < _ABORTED_SHARE)
                self._began = now
                self.end += random.choice((1, 1, 2, 20))
        elif now >= self.transaction.until:
            self.gaps.append((self.transaction.begin if self.transaction.is_aborted else self.end, self.end + 1))
            self.end += 1
            self.committed_from = None if self.transaction.is_aborted else self._began
            self.transaction, self.stable = None, self.end

    def _clean(self) -> None:
        until = self.end - 100
        while self._cleaned + _CLEANED < until:
            self.gaps.append((self._cleaned, self._cleaned + _CLEANED - 1))
            self._cleaned += _CLEANED

    def delete(self, until: int) -> int:
        """Delete what is before an offset, of closed transactions only; return how many offsets that were."""
        before, self.start = self.start, max(self.start, min(until, self.stable))
        return self.start - before

    def truncate(self, count: int) -> None:
        """Lose the last records, as after an unclean election."""
        self.end = self.stable = max(self.start, self.end - count)
        self.gaps = [gap for gap in self.gaps if gap[1] <= self.end]
        self.transaction, self._cleaned = None, min(self._cleaned, self.end)
        self.ends = deque([(self.ends[-1][0], self.end)], _REMEMBERED)

    def first_record(self, begin: int, end: int) -> int | None:
        """Return the first record in a range of offsets that is not deleted."""
        return self._first(max(begin, self.start), end)

    def holds_record(self, begin: int, end: int) -> bool:
        """Return whether a range of offsets has, or had, a record."""
        return self._first(begin, end) is not None

    def _first(self, at: int, end: int) -> int | None:
        place = max(0, bisect_right(self.gaps, (at, self.end + 1)) - 1)
        while place < len(self.gaps) and self.gaps[place][0] <= at:
            at = max(at, self.gaps[place][1])
            place += 1
        return at if at < end else None

    def behind_last_record(self, end: int) -> int:
        """Return the offset behind the last record before another: where a group stands that commits by record."""
        for begin, gap_end in reversed(self.gaps):
            if gap_end < end:
                break
            if begin < end <= gap_end:
                end = begin
        return end

    def readable_for(self, offset: int, now: float) -> float:
        """Return for how many seconds there has been something at an offset."""
        if offset >= self.end:
            return 0.0
        place = bisect_right(self.ends, offset, key=lambda each: each[1])
        return now - (self.ends[place][0] if place < len(self.ends) else now)
