"""The streaming queries: a channel of the bus in, one callback a micro-batch. No rule inside."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.errors import PySparkException

from streaming.jobs import bus_source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming.bus.directory import DirectoryReader
    from streaming.contracts.observations import Channel
    from streaming.jobs.batch import Applied


SECONDS_TO_START: Final = 60.0
SECONDS_TO_FINISH_A_BATCH: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the job reads and writes: the bus, the Delta tables, Spark's checkpoints."""

    bus: Path
    tables: Path
    checkpoint: Path


class Batch(Protocol):
    """What a query does with each micro-batch."""

    @property
    def positions(self) -> dict[str, int]:
        """How far each source was applied."""

    def apply(self, rows: pa.Table) -> Applied:
        """Apply rows of the bus; a batch that comes again changes nothing."""


class Query:
    """One channel's streaming query. It may be started again: a batch that comes again changes nothing."""

    def __init__(
        self, spark: SparkSession, channel: Channel, batch: Batch, places: Places, trigger_seconds: float
    ) -> None:
        """Prepare a query; nothing runs yet.

        Args:
            spark: the session, with the bus registered.
            channel: what to read.
            batch: what to do with it.
            places: where the bus and the checkpoints are.
            trigger_seconds: pause between micro-batches, 0 for none.
        """
        self.channel = channel
        self._spark, self._batch, self._places, self._trigger_seconds = spark, batch, places, trigger_seconds
        self._query: StreamingQuery | None = None
        self._raised: Exception | None = None
        self._applied_before: dict[str, int] = {}

    def start(self) -> None:
        """Start, and wait until the first trigger: Spark gives each new Python reader ten seconds to appear."""
        self._applied_before = {}  # a query that ended may plan its last batch again
        options = {bus_source.DIRECTORY: str(self._places.bus), bus_source.CHANNEL: self.channel}
        self._query = (
            self._spark.readStream.format(bus_source.FORMAT)
            .options(**options)
            .load()
            .writeStream.queryName(self.channel)
            .foreachBatch(self._apply)
            .option("checkpointLocation", str(self._places.checkpoint / self.channel))
            .trigger(processingTime=f"{self._trigger_seconds} seconds")
            .start()
        )
        deadline = time.monotonic() + SECONDS_TO_START
        while self._query.isActive and "nitializ" in self._query.status["message"] and time.monotonic() < deadline:
            time.sleep(0.02)

    def _apply(self, frame: DataFrame, _batch_id: int) -> None:
        try:
            self._batch.apply(frame.toArrow())
        except PySparkException:
            raise
        except Exception as error:
            self._raised = error
            raise

    @property
    def raised(self) -> Exception | None:
        """What our own callback raised, if it did: Spark keeps only a trace of text."""
        return self._raised

    def clean(self, bus: DirectoryReader) -> None:
        """Delete what was applied already at the last call: Spark, too, has left that behind since."""
        for source, position in self._applied_before.items():
            bus.delete_below(self.channel, source, position)
        self._applied_before = self._batch.positions

    def ended(self) -> str | None:
        """Tell in one sentence why the query does not run; None while it does."""
        if self._query is None or self._query.isActive:
            return None
        failure = self._query.exception()
        return str(failure).strip().splitlines()[0] if failure else "it was stopped from outside"

    def stop(self) -> None:
        """Stop while no batch runs: stopping in the middle of one has overflowed the stack of Spark's own thread."""
        query = self._query
        if query is None:
            return
        deadline = time.monotonic() + SECONDS_TO_FINISH_A_BATCH
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.005)
        query.stop()
