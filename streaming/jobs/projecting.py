"""The thread that writes the derived tables behind the batches. It tries again by itself, unless it was refused."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from streaming.errors import TableRefused
from streaming.jobs.queries import sentence_of

if TYPE_CHECKING:
    from collections.abc import Callable

# A round must leave the batches most of the time, however large the state is; but nobody waits long for the tables.
REST_PER_WORK: Final = 5.0
LONGEST_REST_SECONDS: Final = 20.0
LONGEST_PAUSE_SECONDS: Final = 60.0
_log: Final = logging.getLogger(__name__)


class ProjectionThread(threading.Thread):
    """Projects again and again until it is stopped; keeps the error of a round until one succeeds."""

    def __init__(self, project: Callable[[], object], seconds: float) -> None:
        super().__init__(name="projections", daemon=True)
        self._round, self._seconds = project, seconds
        self._stopped = threading.Event()
        self.error: Exception | None = None
        self.seconds = 0.0

    def run(self) -> None:
        """Project, rest, project; after a failure rest longer each time."""
        pause = self._seconds
        while not self._stopped.wait(pause):
            if self._project():
                pause = max(self._seconds, min(self.seconds * REST_PER_WORK, LONGEST_REST_SECONDS))
            elif isinstance(self.error, (TableRefused, AssertionError)):
                return
            else:
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        self._project()

    def _project(self) -> bool:
        began = time.monotonic()
        try:
            self._round()
        except Exception as error:  # noqa: BLE001 - kept for the job, which tells it and decides
            _log.warning("writing the derived tables failed: %s", sentence_of(error))
            self.error = error
        else:
            self.error = None
        self.seconds = time.monotonic() - began
        return self.error is None

    def stop(self) -> None:
        """Project once more and end."""
        self._stopped.set()
        if self.is_alive():
            self.join()
