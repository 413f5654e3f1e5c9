"""What a query of the job is, and one run of it in Spark: a stream in, one callback a micro-batch. No rule inside."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # ships no types
from pyspark.errors import PySparkException

from streaming.delta.upkeep import EVERYTHING, Keep
from streaming.delta.writing import is_disk_full
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming.changes.state import SourceState
    from streaming.contracts.observations import Channel
    from streaming.jobs.batch import Applied
    from streaming.settings import JobSettings


SECONDS_TO_START: Final = 60.0
SECONDS_TO_FINISH_A_BATCH: Final = 30.0
POOL: Final = "spark.scheduler.pool"
OURS: Final = re.compile(r"^\W*streaming\.errors\.\w+: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the job reads and writes: the bus, the Delta tables and what they keep, Spark's checkpoints."""

    bus: Path
    tables: Path
    checkpoint: Path
    keep: Keep = EVERYTHING


class Tables(Protocol):
    """What a query writes, whatever its form. The one writer of its tables."""

    @property
    def positions(self) -> dict[str, int]:
        """How far each source was applied."""

    def position(self, source: str) -> int:
        """Give the position of the last applied observation of a source, -1 for none."""

    def sources(self) -> tuple[list[SourceState], int | None]:
        """Tell how far every source came, and the version of the truth that says so, if it follows from one."""

    def check_ours(self) -> None:
        """Look whether somebody else writes the tables since; before they are opened again after a failure.

        Raises:
            TableRefused: somebody does.
        """


class Batch(Tables, Protocol):
    """What a query does with each micro-batch, in the driver."""

    def apply(self, rows: pa.Table) -> Applied:
        """Apply rows of the stream; a batch that comes again changes nothing."""


@runtime_checkable
class ClusterBatch(Tables, Protocol):
    """What a query does with each micro-batch, on executors."""

    def apply_frame(self, frame: DataFrame) -> Applied:
        """Apply rows of the stream, where they are; a batch that comes again changes nothing."""


class Watch(Protocol):
    """Whoever is told of every batch that was applied."""

    def __call__(self, query: str, applied: Applied, stages: Mapping[str, float]) -> None:
        """Take note; ``stages`` in seconds went before."""


class Follower(Protocol):
    """A thread that works behind a query's batches."""

    @property
    def seconds(self) -> float:
        """What the last round took."""

    @property
    def error(self) -> Exception | None:
        """What the last round failed with; None while it works. It tries again by itself, unless it was refused."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Do what is left, and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One query: what it reads, and what it does with that.

    Attributes:
        stream: makes the streaming DataFrame.
        open: opens the tables that it writes; again after each failure, because what failed may be half done.
        trigger_seconds: pause between micro-batches, 0 for none.
        channel: the channel of the bus that it reads, and may delete what was applied of; None: it reads no bus.
        follow: makes what runs behind the batches.
    """

    stream: Callable[[SparkSession, Places, JobSettings], DataFrame]
    open: Callable[[Places, JobSettings], Batch | ClusterBatch]
    trigger_seconds: Callable[[JobSettings], float]
    channel: Channel | None = None
    follow: Callable[[Any, JobSettings], Follower] | None = None


class Run:
    """One run of a query. A run that ended is followed by another one, never started again."""

    def __init__(  # noqa: PLR0913 - what a stream needs, once
        self,
        name: str,
        rows: DataFrame,
        batch: Batch | ClusterBatch,
        applied: Watch,
        *,
        checkpoint: Path,
        trigger_seconds: float,
    ) -> None:
        """Start, and wait until the first trigger: Spark gives each new Python reader ten seconds to appear.

        Args:
            name: of the query, of its scheduler pool, and of its folder in the checkpoint.
            rows: the stream.
            batch: what to do with it.
            applied: is told of every batch that was applied.
            checkpoint: the folder of all checkpoints.
            trigger_seconds: pause between micro-batches, 0 for none.

        Raises:
            SparkEnded: Spark cannot begin, because of its checkpoint for instance.
        """
        self._name, self._batch, self._applied = name, batch, applied
        self._batches = 0
        self._raised: Exception | None = None
        # Spark's thread of this stream inherits the pool from the thread that starts it.
        rows.sparkSession.sparkContext.setLocalProperty(POOL, name)
        stream = (
            rows.writeStream.queryName(name)
            .foreachBatch(self._apply)
            .option("checkpointLocation", str(checkpoint / name))
            .trigger(processingTime=f"{trigger_seconds} seconds")
        )
        try:
            self._query: StreamingQuery = stream.start()
        except (PySparkException, Py4JJavaError) as error:
            raise sparks_own(error) from error
        deadline = time.monotonic() + SECONDS_TO_START
        while self._query.isActive and "nitializ" in self._query.status["message"] and time.monotonic() < deadline:
            time.sleep(0.02)

    def _apply(self, frame: DataFrame, _batch_id: int) -> None:
        try:
            self._applied(self._name, *self._outcome(frame))
            self._batches += 1
        except PySparkException:
            raise
        except Exception as error:
            self._raised = error  # Spark keeps only a trace of text
            raise

    def _outcome(self, frame: DataFrame) -> tuple[Applied, dict[str, float]]:
        """Apply a batch where it is to be applied; give what it did, and what stages went before, in seconds."""
        if isinstance(self._batch, ClusterBatch):
            return self._batch.apply_frame(frame), {}
        began = time.perf_counter()
        rows = frame.toArrow()
        seconds = time.perf_counter() - began
        return self._batch.apply(rows), {"toArrow": seconds}

    @property
    def came_further(self) -> bool:
        """Whether it came further than its first batch, which may only repeat the last one of the run before it."""
        return self._batches > 1

    def failure(self) -> Exception | None:
        """Tell why the query does not run; None while it does."""
        if self._query.isActive:
            return None
        if self._raised is not None:
            return self._raised
        failure = self._query.exception()
        return sparks_own(failure) if failure else IsrwatchError("it was stopped from outside")

    def stop(self) -> None:
        """Stop while no batch runs: stopping in the middle of one has overflowed the stack of Spark's own thread."""
        deadline = time.monotonic() + SECONDS_TO_FINISH_A_BATCH
        while self._query.isActive and self._query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.005)
        self._query.stop()


class SparkEnded(IsrwatchError):
    """Spark ended a stream, or did not begin it, for a reason of its own."""


def sparks_own(error: BaseException) -> IsrwatchError:
    """Tell what Spark failed with; an error of ours from within a Python worker stays one of ours."""
    if is_disk_full(error):
        return IsrwatchError("a disk is full, that of the checkpoint or of Spark's temporary files; free space")
    return IsrwatchError(sentence_of(error)) if OURS.search(str(error)) else SparkEnded(sentence_of(error))


def sentence_of(error: BaseException) -> str:
    r"""Tell an error in one sentence: our own where it is one of ours, even from within a Python worker of Spark.

    >>> sentence_of(RuntimeError("[FAILED] Traceback: ...\nstreaming.errors.IsrwatchError: it was cut\n at Spark"))
    'it was cut'
    >>> sentence_of(OSError(28, "No space left on device"))
    '[Errno 28] No space left on device'
    """
    text = str(error).strip()
    ours = OURS.findall(text)
    return ours[-1] if ours else (text.splitlines() or [type(error).__name__])[0]
