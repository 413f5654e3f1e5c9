"""The application: the queries that run here, each for itself, and a clean end."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # ships no types

from streaming.bus.directory import DirectoryReader
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.jobs.metrics import JobMetrics, Listener
from streaming.jobs.registry import chosen, register_sources
from streaming.jobs.reporting import Reporter
from streaming.jobs.serving import JobPages
from streaming.jobs.supervised import Supervised
from streaming.runtime.listening import listen

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from streaming.jobs.queries import Places
    from streaming.settings import JobSettings

SECONDS_BETWEEN_LOOKS: Final = 0.2
SECONDS_BETWEEN_CLEANINGS: Final = 60.0
SECONDS_BETWEEN_LINES: Final = 10.0


class Application:
    """Runs until it is told to stop, or until none of its queries can go on."""

    def __init__(self, settings: JobSettings, places: Places, report: Callable[[str], None]) -> None:
        """Check the places and open the tables, which needs no Spark; nothing runs yet.

        Args:
            settings: of the job.
            places: where the bus, the tables and the checkpoints are.
            report: tells people one sentence.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
            ConfigurationError: a setting or a folder is wrong; names the key and the fix.
        """
        _check_checkpoint(places)
        self._bus = DirectoryReader(places.bus)
        self._stopping = threading.Event()
        self.queries = tuple(
            Supervised(name, definition, settings, places, report)
            for name, definition in chosen(settings.queries).items()
        )
        self.reporter = Reporter(self.queries, places)
        self.metrics = JobMetrics()
        self.metrics.watch(self.queries, self.reporter, places.tables)
        self._pages = _serving(settings.listen, self)

    def start(self, spark: SparkSession) -> None:
        """Start the queries, one after the other."""
        self._spark = spark
        register_sources(spark)
        spark.streams.addListener(Listener(self.metrics))
        for query in self.queries:
            query.start(spark)
        self.reporter.start()

    def ailing(self) -> list[str]:
        """Tell what does not run, a sentence each."""
        return [told for query in self.queries if (told := query.ailing)]

    def request_stop(self) -> None:
        """Ask for a clean end; safe in a signal handler."""
        self._stopping.set()

    def progress(self) -> str:
        """Tell in one line what was applied since the start, and how much is not yet; empty before the first batch."""
        told = [
            f"{query} {observations:,} observations, {changes:,} changes"
            for query, (observations, changes) in sorted(self.metrics.totals.items())
        ]
        behind = sum(lag.behind_bytes for lag in self.reporter.lags.values())
        return "; ".join((*told, f"{behind:,} bytes behind")) if told else ""

    def wait(self, tell: Callable[[str], None] = lambda _: None) -> None:
        """Run until asked to stop.

        Args:
            tell: is told the progress every now and then, when there was any.

        Raises:
            IsrwatchError: a query was lost on the way, none is left, or Spark died; what was committed stays.
        """
        try:
            try:
                self._watch(tell)
            finally:
                self._stop()
        except (Py4JNetworkError, ConnectionError) as error:  # of the stop, too, which must not hide it
            raise IsrwatchError("Spark's Java process ended; start the job again: it goes on where it was") from error
        if unfinished := [told for query in self.queries if (told := query.unfinished)]:
            raise IsrwatchError("; ".join(unfinished))

    def _watch(self, tell: Callable[[str], None]) -> None:
        cleaned = told_at = time.monotonic()
        told = ""
        while not self._stopping.wait(SECONDS_BETWEEN_LOOKS) and not all(query.is_lost for query in self.queries):
            for query in self.queries:
                query.look(self._spark)
            if time.monotonic() - cleaned > SECONDS_BETWEEN_CLEANINGS:
                cleaned = time.monotonic()
                for query in self.queries:
                    query.clean(self._bus)
            if time.monotonic() - told_at > SECONDS_BETWEEN_LINES:
                told_at = time.monotonic()
                if (line := self.progress()) != told:
                    tell(told := line)

    def _close(self) -> None:
        if self._pages is not None:
            self._pages.close()

    def _stop(self) -> None:
        """Stop every query, whatever the others say."""
        failures: list[Exception] = []
        for stop in (*(query.stop for query in self.queries), self.reporter.stop, self._close):
            try:
                stop()
            except Exception as failure:  # noqa: BLE001 - the others are to be stopped, too
                failures.append(failure)
        if failures:
            raise failures[0]


def _serving(address: str, application: Application) -> JobPages | None:
    if not address:
        return None
    return JobPages(listen(address, "--listen (job.listen)"), application.metrics.registry, application.ailing)


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
