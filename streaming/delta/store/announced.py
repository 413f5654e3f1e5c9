"""The newest version of each table, in one object: a hint where to look, which may be wrong.

An exporter of a folder looks at each of twenty tables ten times a second, which costs nothing; in a store each look is
a request that costs money. So the job puts one object next to the tables after it has committed, and exporters read
that object every two seconds. It may be late, lost, or old, so exporters also look at each table now and then
regardless. A process that has committed itself knows without a request.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.store.objects import get, put
from streaming.delta.store.place import Url

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.delta.store.place import Place

NAME: Final = "_newest_versions.json"
SECONDS_BETWEEN_PUTS: Final = 1.0
SECONDS_BETWEEN_GETS: Final = 2.0
SECONDS_BETWEEN_LOOKS: Final = 60.0
"""Interval at which exporters look at a table although no newer version was announced."""
_LOOKED_AT_DIRECTLY: Final = PARTITION_CHANGES.name
"""Readers look for its next version themselves (``changes.reader``), so it alone is no reason to put the object."""


class _Announcer:
    """Puts the versions that this process has committed below one folder."""

    def __init__(self, directory: Url) -> None:
        self._directory, self._lock = directory, threading.Lock()
        self._versions: dict[str, int] = {}
        self._timer: threading.Timer | None = None
        self._last: threading.Timer | None = None

    def announce(self, table: str, version: int) -> None:
        """Put the version soon, together with others."""
        with self._lock:
            self._versions[table] = version
            if self._timer is None and table != _LOOKED_AT_DIRECTLY:
                self._timer = threading.Timer(SECONDS_BETWEEN_PUTS, self._put)
                self._timer.daemon = True
                self._timer.start()
                self._last = self._timer

    def finish(self) -> None:
        """Put what waits, now, and wait for a put that is under way."""
        if self._last is not None:
            self._last.cancel()
            self._last.join()
            if self._timer is not None:
                self._put()

    def _put(self) -> None:
        with self._lock:
            self._timer, content = None, json.dumps(self._versions)
        with suppress(OSError):  # exporters look anyway, only later
            put(self._directory / NAME, content.encode())


_announcers: Final[dict[Url, _Announcer]] = {}
_committed: Final[dict[Url, int]] = {}


def announce(table: Place, version: int) -> None:
    """Announce the newest version of a table in a store; readers of folders look themselves."""
    if isinstance(table, Url):
        _committed[table] = version
        _announcers.setdefault(table.parent, _Announcer(table.parent)).announce(table.name, version)


def finish_announcements() -> None:
    """Put all versions that wait to be announced; the last ones of a job that stops."""
    for each in _announcers.values():
        each.finish()


def committed_here(table: Place) -> int | None:
    """Return the version of a table in a store that this process has committed last; None if it does not write it.

    A hint as well: another job may have taken over the table.
    """
    return _committed.get(table) if isinstance(table, Url) else None


class AnnouncedVersions:
    """Versions that jobs have announced below one folder of a store. Safe for several threads."""

    def __init__(self, directory: Url, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._directory, self._monotonic, self._lock = directory, monotonic, threading.Lock()
        self._versions: dict[str, int] = {}
        self._looked_at: dict[str, float] = {}
        self._asked_at = -SECONDS_BETWEEN_GETS

    def newest(self, table: str) -> int | None:
        """Return the version of a table that was announced last; None for none."""
        with self._lock:
            return self._versions.get(table)

    def is_worth_a_look(self, table: str, version: int) -> bool:
        """Return whether a table may have another version than the one that was read."""
        with self._lock:
            now = self._monotonic()
            if now - self._asked_at >= SECONDS_BETWEEN_GETS:
                self._asked_at = now
                self._ask()
            is_long_ago = now - self._looked_at.get(table, -SECONDS_BETWEEN_LOOKS) >= SECONDS_BETWEEN_LOOKS
            if is_long_ago or self._versions.get(table, version) > version:
                self._looked_at[table] = now
                return True
            return False

    def _ask(self) -> None:
        with suppress(OSError, ValueError, AttributeError, TypeError):
            announced = json.loads(get(self._directory / NAME))
            self._versions = {str(table): int(version) for table, version in announced.items()}
