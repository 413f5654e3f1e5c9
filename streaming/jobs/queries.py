"""The protocols of a query, and one run of it in Spark: a stream in, one callback per micro-batch."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # ships no types
from pyspark.errors import PySparkException

from streaming import movement
from streaming.bus.directory import DirectoryReader
from streaming.contracts.identifiers import Micros
from streaming.delta.log.maintenance import KEEP_ALL, RetentionPolicy
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.quarantine import reason_kind
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.jobs.spark_errors import spark_failure
from streaming.movement import Motion
from streaming.settings import AdvancedSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming.bus.kafka.reader import KafkaReader
    from streaming.contracts.identifiers import LogPosition
    from streaming.contracts.observations import Channel
    from streaming.contracts.state import SourceState
    from streaming.delta.quarantine import RefusedRecord
    from streaming.delta.store.place import Place
    from streaming.jobs.projection_thread import ProjectionThread
    from streaming.settings import JobSettings

SECONDS_TO_START: Final = 60.0
SECONDS_TO_FINISH_A_BATCH: Final = 30.0
POOL: Final = "spark.scheduler.pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLocations:
    """Locations that the job reads and writes: the bus, the Delta tables and their retention, Spark's checkpoints.

    Attributes:
        kafka: the bus, if it is not the folder.
        advanced: sizes of batches, and intervals.
        on_executors: Spark's executors fold the clusters of the partitions that they read; else the driver folds all.
    """

    bus: Path
    tables: Place
    checkpoint: Path
    retention: RetentionPolicy = KEEP_ALL
    kafka: KafkaReader | None = None
    on_executors: bool = False
    advanced: AdvancedSettings = field(default_factory=AdvancedSettings)

    def reader(self) -> JobBus:
        """Return the bus that the job reads."""
        return DirectoryReader(self.bus) if self.kafka is None else self.kafka


class JobBus(Protocol):
    """A bus as the job uses it; Spark reads the records themselves."""

    def logs(self, channel: Channel) -> list[str]:
        """List the sources that have a log on a channel, sorted; with Kafka those that were read since the start."""

    def bytes_behind(self, channel: Channel, source: str, position: int) -> tuple[int, int]:
        """Return the end of a log, and the number of bytes after the last applied record."""

    def unread(self, channel: Channel) -> int:
        """Return how many records wait in a topic of which none was read since the start; 0 for a directory."""

    def delete_below(self, channel: Channel, source: str, position: int, log_id: int | None = None) -> None:
        """Delete the applied part of a log."""

    def flush(self, channel: Channel) -> None:
        """Sync the logs to disk."""


class BusProgress(Protocol):
    """Progress of a query that reads the bus."""

    @property
    def applied(self) -> Mapping[str, LogPosition]:
        """Place of the last applied record of each source."""

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source is, ``NOWHERE`` for none."""

    def offset(self, name: str) -> int:
        """Return the offset of the bus that was committed under a name, -1 for none."""

    @property
    def offsets(self) -> Mapping[str, int]:
        """Offsets of the bus, by name, to store with the sources."""

    def set_back(self, now_at: Mapping[str, LogPosition]) -> None:
        """Set sources back to the last common records of their replaced logs."""

    def sources(self) -> tuple[list[SourceState], int | None]:
        """Return the state of every source, and the change log version from which it follows, or None."""


class Batch(Protocol):
    """Applies each micro-batch. The only writer of the query's tables."""

    def apply(self, rows: Any) -> BatchResult:  # noqa: ANN401 - Arrow tables, or a frame of Spark
        """Apply rows of the stream, or versions of the change log; a repeated batch changes nothing."""

    def check_ours(self) -> None:
        """Raise ``TableRefused`` if a later writer has claimed the tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedQuery:
    """The tables of a query, opened.

    Attributes:
        batch: applies micro-batches.
        on_executors: ``batch`` takes frames of Spark, whose rows stay on executors; else the rows.
        progress: how far ``batch`` has applied the bus; None if the query reads no bus.
        background: writes derived tables behind the batches, if there are any.
        notes: sentences for the user.
        after: the version of the change log that the tables have applied, if the query follows it.
    """

    batch: Batch
    on_executors: bool = False
    progress: BusProgress | None = None
    background: ProjectionThread | None = None
    notes: tuple[str, ...] = ()
    after: int = BEFORE_FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDefinition:
    """One query: what it reads, and how its tables are opened.

    Attributes:
        stream: returns the streaming DataFrame of records that its tables have not applied yet; None if the query
            follows the change log in a thread of the driver.
        open: opens its tables; again after each failure, because the failed work may be half done.
        trigger_seconds: pause between micro-batches, 0 for none.
        channel: the channel of the bus that it reads, and whose applied records it may delete; None for no bus.
    """

    stream: Callable[[SparkSession, JobLocations, JobSettings, BusProgress | None], DataFrame] | None
    open: Callable[[JobLocations, JobSettings], OpenedQuery]
    trigger_seconds: Callable[[JobLocations], float]
    channel: Channel | None = None


class QueryRun:
    """One run of a query. A run that has ended is replaced, never restarted."""

    def __init__(  # noqa: PLR0913 - what a stream needs, once
        self,
        name: str,
        rows: DataFrame,
        batch: Batch,
        applied: Callable[[str, BatchResult, Mapping[str, float]], None],
        *,
        on_executors: bool,
        checkpoint: Path,
        trigger_seconds: float,
        moves: Motion | None = None,
    ) -> None:
        """Start, and wait for the first trigger: Spark gives a new Python reader ten seconds, too few for all at once.

        The name is also that of the scheduler pool, and of the folder in ``checkpoint``; an earlier one there is
        deleted: only the tables say where reading starts. ``applied`` is called after every batch with the query, the
        result, and the seconds of earlier stages.

        Raises:
            SparkEnded: Spark cannot begin.
            ConfigurationError: an old checkpoint cannot be deleted.
        """
        self._name, self._batch, self._applied, self._on_executors = name, batch, applied, on_executors
        self._raised: Exception | None = None
        self._moves, self._tasks = moves or Motion(), (-1, 0)
        self._in_batch = Lock()
        _delete(checkpoint / name)
        # Spark's thread of this stream inherits the pool from the thread that starts it.
        self._context = rows.sparkSession.sparkContext
        self._context.setLocalProperty(POOL, name)
        stream = (
            rows.writeStream.queryName(name)
            .foreachBatch(self._apply)
            .option("checkpointLocation", f"file://{(checkpoint / name).absolute()}")  # Spark's default may be HDFS
            .trigger(processingTime=f"{trigger_seconds} seconds")
        )
        try:
            self._query: StreamingQuery = stream.start()
        except (PySparkException, Py4JJavaError) as error:
            raise spark_failure(error) from error
        deadline = time.monotonic() + SECONDS_TO_START
        while self._query.isActive and not self._has_triggered() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _has_triggered(self) -> bool:
        """Return whether Spark has made the readers of this stream, after which the first trigger begins.

        No listener reports that moment (``onQueryStarted`` comes earlier). A very short first trigger leaves progress.
        """
        return self._query.status["isTriggerActive"] or self._query.lastProgress is not None

    def _apply(self, frame: DataFrame, number: int) -> None:
        try:
            with self._in_batch, self._moves.of_this_thread():
                result, stages = self._outcome(frame)
                self._applied(self._name, replace(result, number=number), stages)
        except PySparkException:
            raise
        except Exception as error:
            self._raised = error  # Spark keeps only the text of its traceback
            raise

    def _outcome(self, frame: DataFrame) -> tuple[BatchResult, dict[str, float]]:
        """Apply a batch; return its result, and the seconds of earlier stages."""
        if self._on_executors:
            return self._batch.apply(frame), {}
        began, rows = time.perf_counter(), frame.toArrow()
        seconds = time.perf_counter() - began
        return self._batch.apply(rows), {"toArrow": seconds}

    def failure(self) -> Exception | None:
        """Return why the query does not run; None while it does."""
        if self._query.isActive:
            return None
        if self._raised is not None:
            return self._raised
        failure = self._query.exception()
        if failure is None:
            return IsrwatchError("it was stopped from outside")
        error = spark_failure(failure)
        error.__cause__ = failure
        return error

    def note_tasks(self) -> None:
        """Note that the query moves if tasks of Spark have ended since the last call."""
        tracker = self._context._jsc.sc().statusTracker()  # noqa: SLF001 - PySpark's own shows no job of a stream
        newest = max(tracker.getJobIdsForGroup(str(self._query.runId)), default=-1)
        job = tracker.getJobInfo(newest)
        stages = (tracker.getStageInfo(each) for each in job.get().stageIds()) if job.isDefined() else ()
        ended = newest, sum(stage.get().numCompletedTasks() for stage in stages if stage.isDefined())
        if ended != self._tasks:
            self._moves.note()
        self._tasks = ended

    def stop(self) -> None:
        """Stop between batches: stopping in the middle of one has overflowed the stack of Spark's own thread.

        Of a batch that takes longer Spark does not wait for our part, in which Python would abort if it ended then.
        """
        deadline = time.monotonic() + SECONDS_TO_FINISH_A_BATCH
        while self._query.isActive and self._query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.005)
        try:
            self._query.stop()
        finally:
            if self._in_batch.acquire(timeout=SECONDS_TO_FINISH_A_BATCH):
                self._in_batch.release()


def _delete(checkpoint: Path) -> None:
    try:
        shutil.rmtree(checkpoint)
    except FileNotFoundError:
        return
    except OSError as error:
        sentence = (
            f"cannot delete the old checkpoint {checkpoint}: {error.strerror}; delete it, or point job.checkpoint"
        )
        raise ConfigurationError(f"{sentence} (--checkpoint) at a folder that can be written") from None


# The result of one micro-batch, and how long each stage took. Depends on no table and not on Spark.


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The result of one micro-batch.

    Attributes:
        observations: number applied, including those within unchanged runs.
        changes: number of rows appended to the change log, or written to a sample table.
        refused: number of records put into quarantine.
        version: newest version of the table that holds the query's state; -1 for none.
        seconds: duration.
        stages: seconds per stage.
        reasons: refused records by kind of reason.
        clusters: names of the clusters that it is about.
        number: Spark's number of the batch; None for a batch of no stream.
    """

    observations: int
    changes: int
    refused: int
    version: int
    seconds: float
    stages: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    clusters: AbstractSet[str] = frozenset()
    number: int | None = None


def summed(results: Sequence[BatchResult]) -> BatchResult:
    """Return the sum of the results of several parts of a batch, with the newest version."""
    reasons, stages = Counter[str](), Counter[str]()
    for each in results:
        reasons.update(each.reasons)
        for stage, seconds in each.stages.items():
            stages[stage] += seconds  # type: ignore[assignment]  # a Counter adds any numbers
    return BatchResult(
        observations=sum(each.observations for each in results),
        changes=sum(each.changes for each in results),
        refused=sum(each.refused for each in results),
        version=max((each.version for each in results), default=-1),
        seconds=sum(each.seconds for each in results),
        stages=stages,
        reasons=reasons,
        clusters=frozenset().union(*(each.clusters for each in results)),
    )


class Stopwatch:
    """Times consecutive stages of a batch."""

    def __init__(self) -> None:
        self._began = self._since = time.perf_counter()
        self.stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """End a stage, and begin the next one."""
        movement.note()
        now = time.perf_counter()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self._since
        self._since = now

    @property
    def seconds(self) -> float:
        """Seconds since the stopwatch was created."""
        return time.perf_counter() - self._began


def count_reasons(refused: Iterable[RefusedRecord]) -> Counter[str]:
    """Count refused records by kind of reason."""
    return Counter(reason_kind(record.reason) for record in refused)


def now() -> Micros:
    """Return the wall-clock time."""
    return Micros(time.time_ns() // 1000)
