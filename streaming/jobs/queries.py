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


def start_query(
    spark: SparkSession, channel: Channel, batch: Batch, places: Places, trigger_seconds: float
) -> StreamingQuery:
    """Start the query of one channel.

    Args:
        spark: the session, with the bus registered.
        channel: what to read.
        batch: what to do with it.
        places: where the bus and the checkpoints are.
        trigger_seconds: pause between micro-batches, 0 for none.
    """

    def apply(frame: DataFrame, _batch_id: int) -> None:
        batch.apply(frame.toArrow())

    observations = (
        spark.readStream.format(bus_source.NAME).option("directory", str(places.bus)).option("channel", channel)
    )
    return (
        observations.load()
        .writeStream.queryName(channel)
        .foreachBatch(apply)
        .option("checkpointLocation", str(places.checkpoint / channel))
        .trigger(processingTime=f"{trigger_seconds} seconds")
        .start()
    )
