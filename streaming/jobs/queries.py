"""The streaming queries: a channel of the bus in, one callback a micro-batch. No rule inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from streaming.jobs import bus_source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming.contracts.observations import Channel
    from streaming.jobs.batch import Applied


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the job reads and writes: the bus, the Delta tables, Spark's checkpoints."""

    bus: Path
    tables: Path
    checkpoint: Path


class Batch(Protocol):
    """What a query does with each micro-batch."""

    def apply(self, rows: pa.Table) -> Applied:
        """Apply rows of the bus; a batch that comes again changes nothing."""


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A started query, and what its callback raised: Spark itself keeps only a trace of text."""

    query: StreamingQuery
    raised: list[Exception]

    def failure(self) -> str | None:
        """Tell in one sentence why the query ended; None while it runs."""
        if self.query.isActive and not self.raised:
            return None
        if self.raised:
            return str(self.raised[0])
        failure = self.query.exception()
        return str(failure).strip().splitlines()[0] if failure else "it was stopped from outside"


def start_query(
    spark: SparkSession, channel: Channel, batch: Batch, places: Places, trigger_seconds: float
) -> RunningQuery:
    """Start the query of one channel.

    Args:
        spark: the session, with the bus registered.
        channel: what to read.
        batch: what to do with it.
        places: where the bus and the checkpoints are.
        trigger_seconds: pause between micro-batches, 0 for none.
    """
    raised: list[Exception] = []

    def apply(frame: DataFrame, _batch_id: int) -> None:
        try:
            batch.apply(frame.toArrow())
        except Exception as error:
            raised.append(error)
            raise

    options = {bus_source.DIRECTORY: str(places.bus), bus_source.CHANNEL: channel}
    query = (
        spark.readStream.format(bus_source.FORMAT)
        .options(**options)
        .load()
        .writeStream.queryName(channel)
        .foreachBatch(apply)
        .option("checkpointLocation", str(places.checkpoint / channel))
        .trigger(processingTime=f"{trigger_seconds} seconds")
        .start()
    )
    return RunningQuery(query, raised)
