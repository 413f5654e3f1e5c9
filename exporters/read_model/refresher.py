"""Reads the tables in the background: a scrape is answered from memory and never waits for a table."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client import ProcessCollector

from exporters.read_model.past import Past
from exporters.read_model.snapshot import NO_TABLE
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.movement import Motion
from streaming.runtime.memory import Heap
from streaming.web.http_counts import HttpCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporters.read_model.reader import TablesReader
    from exporters.read_model.snapshot import ReplicationSnapshot

# A refresh that finds nothing costs a millisecond, checking the change log alone a hundredth of it.
SECONDS_BETWEEN_CHECKS: Final = 0.02
SECONDS_BETWEEN_LOOKS: Final = 0.1
"""At the side tables; to find none with another version costs two look-ups of a name for each."""
_PROCESS: Final = ProcessCollector(registry=None)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableHealth:
    """Result of the last reading of one table; ``age_seconds``: since it was last read, None while it never was."""

    table: str
    is_readable: bool
    age_seconds: float | None
    read_seconds: float


@dataclass(frozen=True, slots=True)
class ExporterHealth:
    """The state of the exporter itself.

    ``process`` has what Prometheus' client libraries collect of a process, by name; ``without_detail`` counts the
    partitions that are left out, by cluster; ``drop_in_names`` has a flag for each cluster: whether the names of
    kafka_exporter are shown; ``http`` counts the requests of the server; ``filters`` has the patterns of
    names, by option, and ``families`` whether each family of metrics is exposed.
    """

    program_version: str
    table_version: int
    refresh_seconds: float
    refresh_errors: int
    series: int = 0
    tables: tuple[TableHealth, ...] = ()
    process: Mapping[str, float] = field(default_factory=dict)
    without_detail: Mapping[str, int] = field(default_factory=dict)
    drop_in_names: tuple[tuple[str, int], ...] = ()
    http: HttpCounts = field(default_factory=HttpCounts)
    filters: tuple[tuple[str, str], ...] = ()
    families: tuple[tuple[str, bool], ...] = ()


class Refresher(threading.Thread):
    """Refreshes a reader periodically and on new changes; keeps the last good snapshot, counts and logs errors."""

    def __init__(
        self,
        reader: TablesReader,
        refresh_seconds: float,
        program_version: str,
        prepare: Callable[[ReplicationSnapshot], bool] = lambda _: True,
    ) -> None:
        """Create the thread, which alone uses the reader from now on; nothing is read before ``start``.

        ``prepare`` does something with each new snapshot before it is shown, and returns whether nothing of it is left
        for another time, so that the next change does not wait for it.
        """
        super().__init__(name="refresher", daemon=True)
        self._reader = reader
        self._prepare = prepare
        self.after_first: Callable[[], object] = lambda: None  # called once the first snapshot is prepared
        self._pause = refresh_seconds
        self._program_version = program_version
        self._is_prepared = True
        self._stopped = threading.Event()
        self._heap = Heap()
        self._seconds = 0.0
        self._errors = 0
        self.tables = reader.tables
        self.snapshot: ReplicationSnapshot = reader.snapshot
        self.past = Past(reader.tables, present=lambda: self.snapshot)
        self.last_error: str | None = None
        self.unshown: str | None = None  # why what was read last is not shown
        self._statuses = reader.statuses
        self._movement, self._is_refreshing = Motion(), False

    def hangs(self) -> str | None:
        """Say that a refresh hangs, in one sentence; None while files are read, however many, and between two."""
        if not (self._is_refreshing and self._movement.hangs()):
            return None
        seconds = self._movement.still_seconds()
        return f"reading the tables in {self.tables} hangs: no file was read for {seconds:.0f} s"

    @property
    def unreadable(self) -> dict[str, str]:
        """Return the tables that cannot be read, each with the sentence that says why."""
        return {status.table: status.error for status in self._statuses if status.error is not None}

    def why_not_ready(self) -> str:
        """Say why there is no snapshot yet, in one sentence."""
        if self.last_error is not None:
            return f"the tables cannot be read: {self.last_error}"
        return f"there are no tables in {self.tables} yet; start isrwatch job"

    @property
    def health(self) -> ExporterHealth:
        """Return the exporter's own state."""
        now = self._reader.monotonic()
        return ExporterHealth(
            program_version=self._program_version,
            table_version=self.snapshot.version,
            refresh_seconds=self._seconds,
            refresh_errors=self._errors,
            tables=tuple(
                TableHealth(
                    status.table,
                    status.error is None,
                    None if status.read_at is None else max(0.0, now - status.read_at),
                    status.seconds,
                )
                for status in self._statuses
            ),
            process={sample.name: sample.value for family in _PROCESS.collect() for sample in family.samples},
        )

    def run(self) -> None:
        """Refresh periodically until stopped, and as soon as there are changes; after a failure pause for longer."""
        if self._reader.reads_side_tables_apart:
            threading.Thread(target=self._read_side_tables, name="side-tables", daemon=True).start()
        with self._movement.of_this_thread():
            self._refresh_until_stopped()

    def _refresh_until_stopped(self) -> None:
        while not self._stopped.is_set():
            self.refresh_once()
            self._heap.trim_when_due()
            if self.last_error is None:
                try:
                    self._wait_for_changes()
                except OSError as failure:
                    self._failed(failure, is_ours=False)
            else:
                # Everything is read again, which must not happen ten times a second.
                self._stopped.wait(max(self._pause, self._reader.rest_after_error))

    def _read_side_tables(self) -> None:
        while not self._stopped.wait(SECONDS_BETWEEN_LOOKS):
            self._reader.read_side_tables()

    def _wait_for_changes(self) -> None:
        end = time.monotonic() + self._pause
        while self._is_prepared and (left := end - time.monotonic()) > 0:
            if self._stopped.wait(min(left, SECONDS_BETWEEN_CHECKS)) or self._reader.has_news():
                return

    def refresh_once(self) -> None:
        """Refresh the snapshot once; a failure is counted and logged."""
        began, error = time.perf_counter(), None
        self._movement.note()
        self._is_refreshing = True
        for step in (self._reader.refresh, self._take_over):
            try:
                step()
            except Exception as failure:  # noqa: BLE001 - whatever is wrong with the tables, the last good snapshot must be served
                error = failure
                self._failed(failure, is_ours=step == self._take_over)
        self._is_refreshing = False
        if error is None:
            self.last_error = None
        self._seconds = time.perf_counter() - began
        self._report_tables()

    def _take_over(self) -> None:
        """Show what was read, once it is prepared."""
        if self._reader.snapshot is self.snapshot and self._is_prepared:
            return
        self._is_prepared = self._prepare(self._reader.snapshot)
        if self.snapshot.version == NO_TABLE:
            self.after_first()
        self.snapshot, self.unshown = self._reader.snapshot, None

    def stop(self) -> None:
        """End after the current refresh."""
        self._stopped.set()

    def _failed(self, error: Exception, *, is_ours: bool) -> None:
        self._errors += 1
        message = f"{type(error).__name__}: {error}"
        if message != self.last_error:
            served = "nothing is served yet" if self.snapshot.version == NO_TABLE else "the last state is served"
            what = "the tables could not be shown" if is_ours else "the change log could not be read"
            _LOG.warning("%s, %s: %s", what, served, message, exc_info=error if is_ours else None)
        self.last_error = message
        self.unshown = message if is_ours else self.unshown

    def _report_tables(self) -> None:
        """Log the tables that can no longer be read, and those that can be again; the change log is logged above."""
        before = self.unreadable
        self._statuses = self._reader.statuses
        after = self.unreadable
        for table in sorted({*before, *after} - {PARTITION_CHANGES.name}):
            if table not in after:
                _LOG.info("the table %s can be read again", table)
            elif after[table] != before.get(table):
                _LOG.warning("%s is left out, the other tables are served: %s", table, after[table])
