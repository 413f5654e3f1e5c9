"""Bodies of responses, each made once for all clients that ask for the same in the same moment."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from exporters.read_model.snapshot import ReplicationSnapshot

OF_SCRAPES: Final = 100_000
"""Microseconds for which a body of metrics is shared; ages in it are at most that much too small."""
OF_PAGES: Final = 1_000_000
"""The same of pages, which say when they were made."""
# A client may ask for any names: what was asked for longest ago is dropped.
_MOST: Final = 16
# Bytes above which a body is not held in memory: that of 100,000 partitions, not compressed, has 60 million.
_LARGE: Final = 1 << 23


@dataclass(slots=True)
class _Body:
    lock: threading.Lock = field(default_factory=threading.Lock)
    made_of: tuple[int, int] | None = None  # version and time: the snapshot itself would stay in memory
    made_at: int = 0
    content: bytes = b""


class SharedBodies:
    """Shares bodies. Safe to call from any thread; a request for one that is being made waits for it."""

    def __init__(self, clock: Callable[[], int], shared_micros: int = OF_SCRAPES) -> None:
        """Share nothing yet; ``clock`` returns the time in UTC microseconds."""
        self._clock, self._shared_micros = clock, shared_micros
        self._lock = threading.Lock()
        self._bodies: dict[Hashable, _Body] = {}

    def shared(self, asked: Hashable, snapshot: ReplicationSnapshot, make: Callable[[int], bytes]) -> bytes:
        """Return the body that is asked for, which is made of a snapshot, at a time in UTC microseconds."""
        with self._lock:
            body = self._bodies[asked] = self._bodies.pop(asked, _Body())
            if len(self._bodies) > _MOST:
                del self._bodies[next(iter(self._bodies))]
        made_of = snapshot.version, snapshot.read_at
        with body.lock:
            now = self._clock()
            if body.made_of != made_of or not 0 <= now - body.made_at < self._shared_micros:
                content = make(now)
                if len(content) > _LARGE:
                    return content
                body.content, body.made_of, body.made_at = content, made_of, now
            return body.content
