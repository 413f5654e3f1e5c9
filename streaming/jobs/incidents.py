"""The query of incidents, which follows the change log in a thread of the driver.

Changes are few and already in the tables, so Spark would only add two processes and a batch. It skips versions that
were applied already, so a batch may be repeated. Depends on no rule.
"""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from streaming.changes.incidents.grouping import IncidentGaps
from streaming.delta.changes.reader import ChangeReader, ChangesRestarted
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.log.maintenance import KEEP_ALL, RetentionPolicy
from streaming.jobs.queries import BatchResult
from streaming.movement import Motion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from streaming.delta.store.place import Place
    from streaming.jobs.queries import Batch

VERSIONS_PER_BATCH: Final = 1000
SECONDS_TO_CATCH_UP: Final = 10.0


class IncidentsBatch:
    """Folds changes into incidents. The only writer of ``incidents``."""

    def __init__(
        self, directory: Place, gap_seconds: float, rolling_gap_seconds: float, policy: RetentionPolicy = KEEP_ALL
    ) -> None:
        """Open the table; ``TableRefused`` if it is not ours, or newer than this program."""
        self._table = IncidentsTable(directory, IncidentGaps.of_seconds(gap_seconds, rolling_gap_seconds), policy)

    @property
    def version(self) -> int:
        """The change log version up to which everything was applied."""
        return self._table.version

    def check_ours(self) -> None:
        """Raise ``TableRefused`` if a later writer has claimed the table."""
        self._table.check_ours()

    def apply(self, added: Sequence[tuple[int, pa.Table]]) -> BatchResult:
        """Apply versions of ``partition_changes`` with the rows that they added, oldest first, in one commit at most.

        Raises:
            TableRefused: another job writes the table; nothing was written.
        """
        began, count = time.perf_counter(), self._table.apply(added)
        seconds = time.perf_counter() - began
        clusters = frozenset(name for _, rows in added for name in pc.unique(rows["cluster"]).to_pylist())
        return BatchResult(
            observations=0, changes=count, refused=0, version=self.version, seconds=seconds, clusters=clusters
        )


class ChangesRun:
    """Applies what is new in the change log, until it is stopped or fails."""

    def __init__(  # noqa: PLR0913 - what a run needs, once
        self,
        name: str,
        path: Place,
        after: int,
        batch: Batch,
        applied: Callable[[str, BatchResult, Mapping[str, float]], None],
        *,
        trigger_seconds: float,
        moves: Motion | None = None,
    ) -> None:
        """Start after a version of ``partition_changes``, which need not exist yet.

        ``batch`` applies whole versions, in order; ``applied`` is called after every batch as by
        :class:`streaming.jobs.queries.QueryRun`.
        """
        self._name, self._batch, self._applied = name, batch, applied
        self._reader, self._pause = ChangeReader(path, after), trigger_seconds
        self._moves = moves or Motion()
        self._stopping = Event()
        self._raised: Exception | None = None
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._moves.of_this_thread():
                while not self._stopping.wait(self._pause):
                    self._apply_all()
                self._apply_all()  # the last commits of the queries that were stopped before
        except ChangesRestarted as error:
            self._raised = ChangesRestarted(
                f"{error}; restart the job: its start makes the incidents agree with the table as it is now"
            )
        except Exception as error:  # noqa: BLE001 - any error ends the run; the supervisor starts the next one
            self._raised = error

    def _apply_all(self) -> None:
        """Apply new versions, batch after batch; a stop waits for a few batches at most."""
        until = time.monotonic() + SECONDS_TO_CATCH_UP
        while self._apply_next() and not (self._stopping.is_set() and time.monotonic() > until):
            pass

    def _apply_next(self) -> bool:
        """Apply the next versions; return whether there may be more."""
        if self._reader.rests():
            return False
        began, before = time.perf_counter(), self._reader.version
        added = self._reader.poll(before + VERSIONS_PER_BATCH)
        seconds = time.perf_counter() - began
        if added:
            self._applied(self._name, self._batch.apply(added), {"read": seconds})
        return self._reader.version == before + VERSIONS_PER_BATCH

    @property
    def version(self) -> int:
        """The newest version that was read."""
        return self._reader.version

    def note_tasks(self) -> None:
        """Do nothing: Spark does not run it."""

    def failure(self) -> Exception | None:
        """Return why the query does not run; None while it does."""
        return self._raised

    def stop(self) -> None:
        """Stop after a last look, unless it has failed."""
        self._stopping.set()
        self._thread.join()
