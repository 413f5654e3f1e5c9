"""A row in the log for each batch: query, clusters, rows, seconds.

Batches in quick succession share a row, so that a query writes one in ten seconds at most. A batch that applied nothing
writes none.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streaming.escapes import json_text
from streaming.jobs.queries import summed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from streaming.jobs.queries import BatchResult

SECONDS_BETWEEN_ROWS: Final = 10.0
MOST_NAMES: Final = 5
"""Number of clusters that a row names; it counts the others."""
_PLAIN: Final = re.compile(r"[\w.:/-]+", re.ASCII)


@dataclass(slots=True)
class _Pending:
    """Batches of a query that no row has yet, and when its last row was written."""

    written_at: float = float("-inf")
    batches: list[BatchResult] = field(default_factory=list)


class BatchRows:
    """Writes the rows. Thread-safe: each query applies its batches in a thread of its own."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """Begin; ``write`` gets one row."""
        self._write, self._clock, self._lock = write, clock, threading.Lock()
        self._pending: dict[str, _Pending] = {}

    def add(self, query: str, batch: BatchResult) -> None:
        """Add a batch; write a row if none was written for a while."""
        if not (batch.observations or batch.changes or batch.refused):
            return
        with self._lock:
            self._pending.setdefault(query, _Pending()).batches.append(batch)
        self.write_due()

    def write_due(self, *, is_last: bool = False) -> None:
        """Write the rows that have waited long enough; ``is_last``: all."""
        with self._lock:
            for query, pending in self._pending.items():
                is_due = self._clock() - pending.written_at >= SECONDS_BETWEEN_ROWS
                if pending.batches and (is_due or is_last):
                    self._write(row_of(query, pending.batches))
                    pending.batches, pending.written_at = [], self._clock()


def row_of(query: str, batches: Collection[BatchResult]) -> str:
    """Return the row of consecutive batches of a query, in the notation of logfmt.

    ``batch`` is Spark's number, which begins at 0 at each start of the query, as its page and the history server show
    it. ``seconds`` is what the job needed, without Spark's planning.
    """
    total, numbers = summed([*batches]), [each.number for each in batches if each.number is not None]
    values = {
        "query": query,
        "batch": _span(numbers),
        "batches": f"{len(batches)}",
        "clusters": _names(total.clusters),
        "rows": f"{total.observations}",
        "changes": f"{total.changes}",
        "refused": f"{total.refused}" if total.refused else "",
        "seconds": f"{total.seconds:.3f}",
        "version": f"{total.version}" if total.version >= 0 else "",
    }
    return " ".join((f"batch at={_time()}", *(f"{name}={value}" for name, value in values.items() if value)))


def _time() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _span(numbers: Collection[int]) -> str:
    if not numbers:
        return ""
    first, last = min(numbers), max(numbers)
    return f"{first}" if first == last else f"{first}-{last}"


def _names(clusters: Collection[str]) -> str:
    names = [name if _PLAIN.fullmatch(name) else json_text(name) for name in sorted(clusters)]
    others = [f"+{len(names) - MOST_NAMES}"] if len(names) > MOST_NAMES else []
    return ",".join([*names[:MOST_NAMES], *others])
