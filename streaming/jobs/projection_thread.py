"""The thread that writes the derived tables behind the batches, and retries unless that cannot help."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from streaming.errors import TableRefused
from streaming.jobs.spark_errors import sentence_of
from streaming.movement import STARTING_SECONDS, Motion

if TYPE_CHECKING:
    from collections.abc import Callable

# A round holds the GIL, so it must leave most of the time to the batches; but the tables must not lag far behind.
REST_PER_WORK: Final = 5.0
LONGEST_REST_SECONDS: Final = 20.0
LONGEST_PAUSE_SECONDS: Final = 60.0
_log: Final = logging.getLogger(__name__)


class ProjectionThread(threading.Thread):
    """Writes the derived tables periodically until it is stopped; ``error`` and ``seconds`` are of the last round."""

    def __init__(self, project: Callable[[], float], seconds: float, is_due: Callable[[], bool]) -> None:
        """Write the tables every ``seconds``, if they take no longer and something ``is_due``, and once at the end.

        ``project`` returns the seconds that it took, without the wait for a batch.
        """
        super().__init__(name="projections", daemon=True)
        self._round, self._seconds, self._is_due = project, seconds, is_due
        self._stopped = threading.Event()
        self.error: Exception | None = None
        self.seconds = 0.0
        self.movement, self._is_writing = Motion(), False

    def run(self) -> None:
        """Run a round, rest, repeat; after a failure rest longer each time."""
        with self.movement.of_this_thread():
            self._run()

    def _run(self) -> None:
        pause = self._seconds
        while not self._stopped.wait(pause):
            if not self._is_due():
                continue
            if self._project():
                pause = max(self._seconds, min(self.seconds * REST_PER_WORK, LONGEST_REST_SECONDS))
            elif isinstance(self.error, (TableRefused, AssertionError)):
                return
            else:
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        self._project()

    def _project(self) -> bool:
        self.movement.note()
        self._is_writing = True
        try:
            self.seconds = self._round()
        except Exception as error:  # noqa: BLE001 - kept for the supervisor of the query, which decides
            _log.warning("writing the derived tables failed: %s", sentence_of(error))
            self.error = error
        else:
            self.error = None
        finally:
            self._is_writing = False
        return self.error is None

    def hangs(self) -> bool:
        """Return whether a round has committed nothing for long; nothing is seen of what it computes before."""
        return self._is_writing and self.movement.hangs(limit=STARTING_SECONDS)

    def stop(self) -> None:
        """Run a last round, and join the thread."""
        self._stopped.set()
        if self.is_alive():
            self.join()
