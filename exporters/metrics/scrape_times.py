"""When the next scrape may come, so that what it shows is put together shortly before, not at every commit."""

from __future__ import annotations

from collections import deque
from typing import Final

LEAD_MICROS: Final = 2_000_000
"""How long before a scrape something is prepared for it: of a job that commits once a second, the last commit, too."""
_INTERVALS: Final = 4
"""So many of the last intervals are looked at: two servers that scrape in turn make unequal ones."""


class ScrapeTimes:
    """The times of the last scrapes, in UTC microseconds."""

    def __init__(self) -> None:
        """Start before the first scrape."""
        self._last: int | None = None
        self._intervals: deque[int] = deque(maxlen=_INTERVALS)

    def add(self, now: int) -> None:
        """Add a scrape."""
        if self._last is not None:
            self._intervals.append(abs(now - self._last))  # the clock may have been set back
        self._last = now

    def may_be_near(self, now: int) -> bool:
        """Return whether the next scrape may come within the lead: as soon after the last one as any did before."""
        if self._last is None:
            return False
        if not self._intervals:
            return True
        since = abs(now - self._last)
        return min(self._intervals) - LEAD_MICROS <= since <= max(self._intervals) + LEAD_MICROS
