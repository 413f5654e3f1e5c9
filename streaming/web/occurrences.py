"""Log lines that clients can cause at will: each at most once a minute, with how often it was so."""

from __future__ import annotations

import logging
import time
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS: Final = 60.0


@dataclass(slots=True)
class _Occurrence:
    record: logging.LogRecord
    logged_at: float
    left_out: int = 0


class OncePerMinute(logging.Filter):
    """A filter of a logger: lines of the same template pass once a minute; the others are counted."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._occurrences: dict[str, _Occurrence] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is logged now."""
        now, template = self._clock(), str(record.msg)
        before = self._occurrences.get(template)
        if before is not None and now - before.logged_at < SECONDS:
            before.left_out += 1
            before.record = record
            return False
        self._occurrences[template] = _Occurrence(record, now)
        return True

    def log_left_out(self) -> None:
        """Log how often a line was left out, a minute after it was logged."""
        now = self._clock()
        for template, occurrence in list(self._occurrences.items()):
            if now - occurrence.logged_at < SECONDS:
                continue
            if not occurrence.left_out:
                del self._occurrences[template]
                continue
            line = copy(occurrence.record)
            line.msg, line.args = f"{line.getMessage()} ({occurrence.left_out:,} times more within a minute)", ()
            logging.getLogger(line.name).callHandlers(line)
            occurrence.logged_at, occurrence.left_out = now, 0
