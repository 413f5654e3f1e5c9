"""Supervision of one query: after a failure and a growing pause its tables are opened again, and it is restarted.

A failure that no restart can fix stops it for good: another writer of its tables, records of a newer format on the bus,
a wrong configuration, a broken invariant. Knows queries and time, but not what queries do.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # ships no types
from pyspark.errors import PySparkException

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.errors import ConfigurationError, ConnectionRefused, NewerFormat, TableRefused
from streaming.jobs.incidents import ChangesRun
from streaming.jobs.queries import QueryRun
from streaming.jobs.spark_errors import SparkEnded, sentence_of, spark_failure, trace_of
from streaming.movement import STARTING_SECONDS, STILL_SECONDS, Motion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from streaming.contracts.identifiers import LogPosition
    from streaming.jobs.queries import BatchResult, JobBus, JobLocations, QueryDefinition
    from streaming.settings import JobSettings

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
# A query that has run for this long has recovered: its next failure is a new one, and its pauses are short again.
RECOVERED_AFTER_SECONDS: Final = 300.0
RUNS_AGAIN_AFTER_SECONDS: Final = 10.0
MOST_TAKEN_BACK: Final = 5
"""Limit of openings of the tables after another job has written them, until the query has recovered."""
NOT_RETRIED: Final = (TableRefused, NewerFormat, ConfigurationError, AssertionError)


class Waiting(NamedTuple):
    """Something that waits for a query: since when, of the monotonic clock, and what it is."""

    since: float
    what: str


@runtime_checkable
class VersionedBatch(Protocol):
    """A batch that writes the change log."""

    @property
    def version(self) -> int:
        """The newest version of the change log."""


def read_mark(places: JobLocations, query: str) -> Path:
    """Return the file that the workers that read the bus touch."""
    return places.checkpoint / f"{query}-read"


class SupervisedQuery:
    """One query of the application.

    Attributes:
        name: of the query.
        batch: applies its micro-batches; replaced at each restart.
        progress: how far it has applied the bus, None if it reads no bus; replaced at each restart.
        restarts: number of restarts.
        last_error: the newest failure in one sentence, even after the query has recovered.
        applied: called after every batch.
        background: the writer that runs behind its batches, if any.
        is_lost: it has stopped for good.
        is_superseded: it has stopped for good because another job writes its tables.
        is_stopping: returns whether the stop of the job is requested: then a failure of Spark is no news.
        is_rightful: returns whether it is proven that this job may write them, and a job that has written them may not.
    """

    def __init__(
        self,
        name: str,
        definition: QueryDefinition,
        settings: JobSettings,
        places: JobLocations,
        report: Callable[[str], None],
    ) -> None:
        """Open the tables of a query; nothing runs yet. ``report`` shows one sentence to the user.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
            ConfigurationError: the tables and the bus do not belong together.
        """
        self.name, self.definition = name, definition
        self._settings, self._places, self._report = settings, places, report
        self.restarts = 0
        self.last_error: str | None = None
        self.is_lost = self.is_superseded = False
        self.applied: Callable[[str, BatchResult, Mapping[str, float]], None] = lambda *_: None
        self.is_rightful: Callable[[], bool] = lambda: False
        self.is_stopping: Callable[[], bool] = lambda: False
        self.movement = Motion()
        self._taken_back, self._takes_back = 0, False
        self._read_at: int | None = None
        self._run: QueryRun | ChangesRun | None = None
        self._began = self._again_at = 0.0
        self._pause = FIRST_PAUSE_SECONDS
        self._is_recovering = False
        self._traced = set[str]()
        self._applied_before: Mapping[str, LogPosition] = {}
        self._open()

    def _open(self) -> None:
        opened = self.definition.open(self._places, self._settings)
        self.batch, self.progress, self.background = opened.batch, opened.progress, opened.background
        self._after, self._on_executors = opened.after, opened.on_executors
        for note in opened.notes:
            self._report(note)

    @property
    def is_up(self) -> bool:
        """True if it runs, and the last round of its background writer succeeded."""
        return self._run is not None and self._background_error is None

    @property
    def is_settled(self) -> bool:
        """True if it has run for a while, so that Spark has planned it."""
        return self._run is not None and time.monotonic() - self._began > RUNS_AGAIN_AFTER_SECONDS

    @property
    def _background_error(self) -> Exception | None:
        return None if self.background is None else self.background.error

    @property
    def problem(self) -> str | None:
        """Present problem, in one sentence; None without one."""
        if self._run is None:
            return f"the query {self.name} is down: {self.last_error or 'it has not started yet'}"
        behind = self._background_error
        return None if behind is None else f"the tables derived by the query {self.name} are not written: {behind}"

    @property
    def is_starting(self) -> bool:
        """True before its first start, unless that takes too long, or it has failed."""
        return self._run is None and self.last_error is None and not self.movement.hangs()

    def hangs(self, waiting: Waiting | None) -> str | None:
        """Say that it does not move though something waits for it, in one sentence; None if it moves, or has nothing.

        Of work on executors and of incidents nothing is seen but ended tasks and commits: so it may take longer.
        """
        if self._run is None:
            return None
        if self.background is not None and self.background.hangs():
            still = f"none was committed for {self.background.movement.still_seconds():.0f} s"
            return f"the writing of the tables derived by the query {self.name} hangs: {still}"
        self._look_at_reading()
        is_seen = self.definition.stream is not None and not self._on_executors
        limit = STILL_SECONDS if is_seen else STARTING_SECONDS
        if waiting is None or not self.movement.hangs(waiting.since, limit):
            return None
        seconds = self.movement.still_seconds(waiting.since)
        what = f"no row was read or folded and nothing committed for {seconds:.0f} s"
        return f"the query {self.name} hangs: {waiting.what}, and {what}"

    def note_tasks(self) -> None:
        """Note that it moves if tasks of Spark have ended since the last call."""
        if self._run is not None:
            self._run.note_tasks()

    def _look_at_reading(self) -> None:
        """Note that it moves if the workers that read the bus have touched their file."""
        try:
            read_at = read_mark(self._places, self.name).stat().st_mtime_ns
        except OSError:
            return
        if read_at != self._read_at:
            self.movement.note()
        self._read_at = read_at

    @property
    def version(self) -> int | None:
        """The newest version of the change log that it has made, or has followed; None for neither."""
        if self.definition.stream is None:
            return self._run.version if isinstance(self._run, ChangesRun) else None
        return self.batch.version if isinstance(self.batch, VersionedBatch) else None

    @property
    def unfinished(self) -> str | None:
        """Unfinished work, in one sentence; None for nothing."""
        if self.is_lost:
            return f"the query {self.name} was stopped by: {self.last_error}"
        if (behind := self._background_error) is not None:
            return f"the tables derived by the query {self.name} lag behind; the next start updates them: {behind}"
        return None

    def start(self, spark: SparkSession) -> None:
        """Start the query and its background writer; if Spark or the bus fails, a later check retries."""
        try:
            self._start(spark)
        except (SparkEnded, ConnectionRefused) as error:
            self._fail(error)

    def _start(self, spark: SparkSession) -> None:
        self._applied_before = {}  # its last batch may be applied in part, and must be read from the bus again
        self.movement.begin()
        self._run = self._new_run(spark)
        self._began = time.monotonic()
        if self.background is not None:
            self.background.start()

    def _new_run(self, spark: SparkSession) -> QueryRun | ChangesRun:
        pause = self.definition.trigger_seconds(self._places)
        if self.definition.stream is None:
            path = self._places.tables / PARTITION_CHANGES.name
            return ChangesRun(
                self.name, path, self._after, self.batch, self.applied, trigger_seconds=pause, moves=self.movement
            )
        try:
            rows = self.definition.stream(spark, self._places, self._settings, self.progress)
        except PySparkException as error:  # Spark starts a Python worker to get the schema
            raise spark_failure(error) from error
        return QueryRun(
            self.name,
            rows,
            self.batch,
            self.applied,
            on_executors=self._on_executors,
            checkpoint=self._places.checkpoint,
            trigger_seconds=pause,
            moves=self.movement,
        )

    def check(self, spark: SparkSession) -> None:
        """Handle a failure; start again after the pause."""
        if self.is_lost:
            return
        if self._run is None:
            if time.monotonic() >= self._again_at:
                self._start_again(spark)
            return
        # The background writer retries by itself. Only an error that no retry can fix ends its query.
        behind = self._background_error
        failure = self._run.failure() or (behind if isinstance(behind, NOT_RETRIED) else None)
        if failure is not None:
            self._fail(failure)
        elif self._is_recovering and self.is_settled:
            self._is_recovering = False
            self._report(f"the query {self.name} runs again")

    def _start_again(self, spark: SparkSession) -> None:
        self.restarts += 1
        try:
            if not self._takes_back:
                self.batch.check_ours()  # before opening takes the next generation: a later job keeps the tables
            self._open()
            self._start(spark)
        except Py4JNetworkError:  # Spark itself is gone: nothing can be restarted
            raise
        except Exception as error:  # noqa: BLE001 - the other queries continue after any error
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._run is not None and time.monotonic() - self._began > RECOVERED_AFTER_SECONDS:
            self._pause, self._taken_back = FIRST_PAUSE_SECONDS, 0
        self.stop()
        self.last_error = sentence_of(error)
        self._takes_back = isinstance(error, TableRefused) and self._taken_back < MOST_TAKEN_BACK and self.is_rightful()
        self._taken_back += self._takes_back
        self.is_lost = isinstance(error, NOT_RETRIED) and not self._takes_back
        self.is_superseded = self.is_lost and isinstance(error, TableRefused)
        if isinstance(error, SparkEnded) and self.is_stopping():
            return
        if self.is_lost:
            self._report(f"the query {self.name} stopped for good: {self.last_error}")
            return
        self._is_recovering = True
        self._report(f"the query {self.name} failed: {self.last_error}; it starts again in {self._pause:g} s")
        self._write_trace(self.last_error, trace_of(error))
        self._again_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    def _write_trace(self, sentence: str, trace: str) -> None:
        """Write the traceback of the newest failure into a file; report the file once per kind of failure."""
        if not trace:
            return
        path = self._places.checkpoint / f"{self.name}-failure.txt"
        try:
            path.write_text(f"{trace}\n", encoding="utf-8")
        except OSError:  # the failure itself may be a full disk
            self._report(trace)
            return
        if sentence not in self._traced:
            self._traced.add(sentence)
            self._report(f"where that came from is in {path}")

    def delete_applied(self, bus: JobBus) -> None:
        """Delete from the bus the records that were already applied at the previous call.

        Later ones stay: a batch that fails is planned again, and must be able to read them.
        """
        if self.definition.channel is None or self.progress is None:
            return
        for source, at in self._applied_before.items():
            bus.delete_below(self.definition.channel, source, at.position, at.log_id)
        self._applied_before = self.progress.applied

    def stop(self) -> None:
        """Stop the query after its batch, and its background writer after a last round."""
        run, self._run = self._run, None
        try:
            if run is not None:
                run.stop()
        finally:
            if self.background is not None:
                self.background.stop()
