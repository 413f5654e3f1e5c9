"""The application: the queries of this process, independent of each other, from start to clean stop."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # ships no types

from streaming.bus.directory import DirectoryReader
from streaming.contracts.observations import Channel
from streaming.delta.log.durable import cut_unflushed, flush
from streaming.delta.log.storage import make_folder
from streaming.delta.projections.rollback import roll_back
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.jobs.metrics import PREFIX, JobMetrics
from streaming.jobs.registry import QUERIES, chosen, register_sources
from streaming.jobs.reporting import Reporter
from streaming.jobs.supervised import SupervisedQuery
from streaming.runtime.listening import listen_all
from streaming.web.protection import protection_of
from streaming.web.status import StatusServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from streaming.jobs.queries import Places
    from streaming.settings import JobSettings

SECONDS_BETWEEN_CHECKS: Final = 0.2
SECONDS_BETWEEN_DELETIONS: Final = 60.0
SECONDS_BETWEEN_PROGRESS: Final = 10.0


class Application:
    """Runs until a stop is requested, or until none of its queries can continue."""

    def __init__(self, settings: JobSettings, places: Places, report: Callable[[str], None]) -> None:
        """Check the places and open the tables, which needs no Spark; nothing runs yet.

        Args:
            settings: of the job.
            places: where the bus, the tables and the checkpoints are.
            report: shows one sentence to the user.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
            ConfigurationError: a setting or a folder is wrong; names the key and the fix.
        """
        _check_checkpoint(places)
        self._tables, self._report = places.tables, report
        self._bus = DirectoryReader(places.bus)
        self._stopping = threading.Event()
        make_folder(places.tables)
        self._flush()  # opening may add columns to them
        self.queries = tuple(
            SupervisedQuery(name, definition, settings, places, report)
            for name, definition in chosen(settings.queries).items()
        )
        self._flush()
        self.reporter = Reporter(self.queries, places)
        self.metrics = JobMetrics()
        self.metrics.watch(self.queries, self.reporter, places.tables)
        self._server = _server(settings, self)

    def start(self, spark: SparkSession) -> None:
        """Start the queries, one after the other; none once a stop is requested."""
        self._spark = spark
        register_sources(spark)
        for query in self.queries:
            if not self._stopping.is_set():
                query.start(spark)
        self.reporter.start()

    def problems(self) -> list[str]:
        """List what does not run now, one sentence per query."""
        return [problem for query in self.queries if (problem := query.problem)]

    def request_stop(self) -> None:
        """Request a clean stop; safe in a signal handler."""
        self._stopping.set()

    def progress(self) -> str:
        """Return one line: what was applied since the start, and how much is not yet; empty before the first batch."""
        totals = [
            f"{query} {observations:,} observations, {changes:,} changes"
            for query, (observations, changes) in sorted(self.metrics.totals.items())
        ]
        behind = sum(lag.behind_bytes for lag in self.reporter.lags.values())
        return "; ".join((*totals, f"{behind:,} bytes behind")) if totals else ""

    def wait(self, show_progress: Callable[[str], None] = lambda _: None) -> None:
        """Run until a stop is requested.

        Args:
            show_progress: gets the line of ``progress`` every few seconds when it changed, and one when a stop begins.

        Raises:
            IsrwatchError: a query stopped for good, none is left, or Spark died; what was committed stays.
        """
        try:
            try:
                self._supervise(show_progress)
            finally:
                if self._stopping.is_set():
                    show_progress("stopping: each query ends its batch first")
                self._stop()
        except (Py4JError, ConnectionError) as error:  # from the stop, too, which must not hide that Spark died
            # Who stops a group of processes, as systemd does, stops Spark's as well: nothing is lost by that.
            if not self._stopping.wait(SECONDS_BETWEEN_CHECKS):
                self._raise_ended(error)
        if unfinished := [sentence for query in self.queries if (sentence := query.unfinished)]:
            raise IsrwatchError("; ".join(unfinished))

    def _raise_ended(self, error: Exception) -> None:
        if isinstance(error, Py4JNetworkError | ConnectionError):
            sentence = "Spark's Java process ended; start the job again: it continues where it stopped"
            raise IsrwatchError(sentence) from error
        raise error

    def _supervise(self, show_progress: Callable[[str], None]) -> None:
        deleted_at = shown_at = time.monotonic()
        shown = ""
        while not self._stopping.wait(SECONDS_BETWEEN_CHECKS) and not all(query.is_lost for query in self.queries):
            for query in self.queries:
                query.check(self._spark)
            if time.monotonic() - deleted_at > SECONDS_BETWEEN_DELETIONS:
                deleted_at = time.monotonic()
                for query in self.queries if self._flush() else ():  # the bus keeps what a power cut could take
                    query.delete_applied(self._bus)
            if time.monotonic() - shown_at > SECONDS_BETWEEN_PROGRESS:
                shown_at = time.monotonic()
                if (line := self.progress()) != shown:
                    show_progress(shown := line)

    def _flush(self) -> bool:
        """Flush the tables to the disk; report where that fails, and return whether it did not."""
        try:
            flush(self._tables, self._flush_bus)
        except (OSError, IsrwatchError) as error:
            self._report(f"the tables cannot be flushed to the disk, so the bus keeps what they hold: {error}")
            return False
        return True

    def _flush_bus(self) -> None:
        for channel in Channel:
            self._bus.flush(channel)

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()

    def _stop(self) -> None:
        """Stop every query, even if stopping another one fails."""
        failures: list[Exception] = []
        stops: tuple[Callable[[], object], ...] = (
            *(query.stop for query in self.queries),
            self.reporter.stop,
            self._flush,
            self._close_server,
        )
        for stop in stops:
            try:
                stop()
            except Exception as failure:  # noqa: BLE001 - the others must be stopped, too
                failures.append(failure)
        if failures:
            raise failures[0]


def _server(settings: JobSettings, application: Application) -> StatusServer | None:
    if not settings.listen:
        return None
    protected = protection_of(settings.web_config_file)
    return StatusServer(
        listen_all(settings.listen, "--listen (job.listen)"),
        application.metrics.registry,
        application.problems,
        program="job",
        prefix=PREFIX,
        healthy="every query runs",
        protected=protected,
    )


def _check_checkpoint(places: Places) -> None:
    try:
        places.checkpoint.mkdir(parents=True, exist_ok=True)
        if os.access(places.checkpoint, os.W_OK):
            return
        reason = "Permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    raise ConfigurationError(
        f"cannot write checkpoints to {places.checkpoint}: {reason}; point job.checkpoint (--checkpoint) at a folder "
        "that can be written"
    )


def recover(tables: Path, report: Callable[[str], None]) -> None:
    """Take back what a power cut, or a copy of a part of the tables, has left of a future that is gone.

    Before the tables of a query are locked or opened.

    Raises:
        TableRefused: that must be done, and another job writes the tables.
        TableUnreadable: a table lacks what had been flushed to the disk.
    """
    if cut := cut_unflushed(tables, QUERIES):
        report(
            f"the machine stopped before {sum(cut.values())} versions of the tables had certainly reached the disk "
            f"({', '.join(sorted(cut))}): they are cut off, and what they held is read from the bus again"
        )
    if ahead := roll_back(tables, QUERIES):
        report(f"{', '.join(ahead)} were ahead of partition_changes, which is older: they are rolled back to it")
