"""Requests before what is prepared for later ones: two threads of Python share one processor."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streaming.web.http_counts import HttpCounts

LONGEST_SECONDS: Final = 0.02
"""The longest wait, and the least time between two: a client that reads slowly holds up no more than half the work."""
ARRIVAL_SECONDS: Final = 0.005
"""For how long a client that has connected is expected to send its request."""
_LOOK_SECONDS: Final = 0.0005


class ScrapesFirst:
    """Called by a thread that prepares responses, often: waits while a request is being responded to."""

    def __init__(self, counts: HttpCounts) -> None:
        """Give way to the requests of one server."""
        self._counts = counts
        self._not_before = 0.0

    def __call__(self) -> None:
        """Wait, if there is a request, and the last wait was not just now."""
        now = time.monotonic()
        if not self._is_busy(now) or now < self._not_before:
            return
        end = now + LONGEST_SECONDS
        while self._is_busy(now) and now < end:
            time.sleep(_LOOK_SECONDS)
            now = time.monotonic()
        self._not_before = now + LONGEST_SECONDS

    def _is_busy(self, now: float) -> bool:
        return self._counts.in_flight > 0 or now - self._counts.arrived_at < ARRIVAL_SECONDS
