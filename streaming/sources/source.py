"""The interface of a source."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from streaming.contracts.identifiers import Micros

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.contracts.observations import Observation


class Source(Protocol):
    """Something that can be polled for observations.

    ``name`` identifies the source on the bus, for example ``metadata_log:collector-1``.
    """

    name: str

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Return the observations since the last call, oldest first; block for at most a second.

        Raises:
            ConnectionRefused: the cluster cannot be read; the caller backs off and polls again.
        """

    def acknowledge(self) -> None:
        """Note that everything returned so far is durable on the bus, so that a position may be checkpointed."""

    def close(self) -> None:
        """Close all connections."""


# Timers: when a source asks again, and when it has been without an answer for too long; and the clocks.
#
# By the monotonic clock: when the wall clock is set back, nothing would be due.


AT_ONCE: Final = Micros(0)
_JUMP: Final = 60_000_000
SILENCE_SECONDS: Final = 30.0
"""Less than after which data are stale, so that another source is there in time; more than any election takes."""


def wall_clock() -> Micros:
    """Return the wall-clock time."""
    return Micros(time.time_ns() // 1000)


def monotonic() -> Micros:
    """Return the monotonic time."""
    return Micros(time.monotonic_ns() // 1000)


def suspended() -> Micros:
    """Return for how long this machine was suspended since it started, where that is known: on Linux."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return Micros(max(0, time.clock_gettime_ns(clock) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) // 1000)


class ClockJumps:
    """Detector of a wall clock that was set, or a machine that was suspended, since the last look."""

    def __init__(self, clock: Callable[[], Micros]) -> None:
        self._clock = clock
        self._ahead = clock() - monotonic()

    def take(self) -> Micros:
        """Return by how much the clock was set since the last call; 0 for what a clock is corrected by as it runs."""
        before, self._ahead = self._ahead, self._clock() - monotonic()
        jump = self._ahead - before
        return Micros(jump if abs(jump) > _JUMP else 0)


PAUSES: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
STABLE_SECONDS: Final = 300.0  # what ran for so long is started again at once when it ends


@dataclass(slots=True)
class Timer:
    """Is due at once, then once per period, which is in microseconds, by :func:`monotonic`."""

    period: Micros
    next_at: Micros = AT_ONCE

    def take_due(self, now: Micros) -> bool:
        """Return whether it is due, and if so, set the next time; ``now`` is the monotonic time."""
        if now < self.next_at:
            return False
        self.restart(now)
        return True

    def restart(self, now: Micros, *, passed: int = 0) -> None:
        """Be due when a period is over, of which so many microseconds have passed."""
        self.next_at = Micros(now + self.period - min(max(0, passed), self.period))

    def hasten(self, at: int) -> None:
        """Be due at that time, unless it is due before."""
        self.next_at = Micros(min(self.next_at, at))

    def expire(self) -> None:
        """Be due at once."""
        self.next_at = AT_ONCE


class Silence:
    """State of a source without an answer for so long that another one has to take over; so it is until its first.

    Args:
        after: microseconds.
        clock: the monotonic time.
    """

    def __init__(self, after: Micros, clock: Callable[[], Micros]) -> None:
        self._after, self._clock = after, clock
        self._since = clock()
        self._has_answered = self._is_refused = False

    @property
    def lasts(self) -> bool:
        """True if it is silent."""
        return not self._has_answered or self._is_long

    @property
    def _is_long(self) -> bool:
        return self._is_refused or self._clock() - self._since > self._after

    def end(self) -> bool:
        """Note an answer; return whether another source may have taken over before it."""
        was_long, self._since = self._is_long, self._clock()
        self._has_answered, self._is_refused = True, False
        return was_long

    def begin(self) -> None:
        """Note that the source was refused, so that to wait is of no use."""
        self._is_refused = True


class RestartPauses:
    """Wait before a restart: longer each time, until the process has run for a while."""

    def __init__(self) -> None:
        self._ends = 0

    def after(self, seconds: float) -> float:
        """Return the seconds to wait after a run of so many seconds."""
        self._ends = 0 if seconds > STABLE_SECONDS else self._ends
        pause = PAUSES[min(self._ends, len(PAUSES) - 1)]
        self._ends += 1
        return pause


# A source whose clock runs faster or slower than the wall clock. Depends on the interface of sources only.


MOST_AHEAD: Final = 1_800_000_000


class PacedSource:
    """Polls a source with a clock that runs ``speed`` times as fast as the wall clock, from ``start`` on.

    It runs ahead by ``MOST_AHEAD`` at most, and then only as fast as the wall clock: the job refuses later times.
    """

    def __init__(self, source: Source, *, start: Micros, speed: float) -> None:
        self.name = source.name
        self._source, self._start, self._speed = source, start, speed

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Poll the source at the paced time."""
        paced = self._start + round((now - self._start) * self._speed)
        return self._source.poll(Micros(min(paced, now + MOST_AHEAD)))

    def acknowledge(self) -> None:
        """Acknowledge to the source."""
        self._source.acknowledge()

    def close(self) -> None:
        """Close the source."""
        self._source.close()
