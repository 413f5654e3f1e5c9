"""Reads the tables in the background: a scrape is answered from memory and never waits for a table."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from exporters.metric import Health

if TYPE_CHECKING:
    from exporters.reader import Reader
    from exporters.snapshot import ReplicationSnapshot

# A failed look may have read everything anew; it must not be repeated ten times a second.
PAUSE_AFTER_ERROR: Final = 1.0
_LOG = logging.getLogger(__name__)


class Refresher(threading.Thread):
    """Refreshes a reader again and again; keeps the last good snapshot, counts and tells errors."""

    def __init__(self, reader: Reader, refresh_seconds: float, program_version: str) -> None:
        """Read nothing before ``start``.

        Args:
            reader: from now on this thread's alone.
            refresh_seconds: pause between two looks.
            program_version: told by ``build_info``.
        """
        super().__init__(name="refresher", daemon=True)
        self._reader = reader
        self._pause = refresh_seconds
        self._program_version = program_version
        self._stopped = threading.Event()
        self._seconds = 0.0
        self._errors = 0
        self.tables = reader.tables
        self.snapshot: ReplicationSnapshot = reader.snapshot
        self.last_error: str | None = None

    @property
    def health(self) -> Health:
        """Tell how the reading goes."""
        return Health(
            program_version=self._program_version,
            table_version=self.snapshot.version,
            refresh_seconds=self._seconds,
            refresh_errors=self._errors,
        )

    def run(self) -> None:
        """Look, rest, look."""
        while not self._stopped.is_set():
            self.look()
            self._stopped.wait(self._pause if self.last_error is None else max(self._pause, PAUSE_AFTER_ERROR))

    def look(self) -> None:
        """Read once."""
        began = time.perf_counter()
        try:
            self.snapshot = self._reader.refresh()
        except Exception as error:  # noqa: BLE001 - whatever ails the tables, the last good page must be served
            self._failed(error)
        else:
            self.last_error = None
        self._seconds = time.perf_counter() - began

    def stop(self) -> None:
        """End after the current look."""
        self._stopped.set()

    def _failed(self, error: Exception) -> None:
        self._errors += 1
        told = f"{type(error).__name__}: {error}"
        if told != self.last_error:
            _LOG.warning("the tables could not be read, the last good page is served: %s", told)
        self.last_error = told
