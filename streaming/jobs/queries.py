"""The streaming queries: a channel of the bus in, decoded, one callback a micro-batch. No rule inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streaming.jobs import bus_source
from streaming.transforms.decode import decode

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming.contracts.observations import Channel
    from streaming.jobs.batch import Applied


class Batch(Protocol):
    """What a query does with each micro-batch."""

    def apply(self, rows: pa.Table) -> Applied:
        """Apply decoded rows; a batch that comes again changes nothing."""


def start_query(
    spark: SparkSession, channel: Channel, batch: Batch, *, bus: Path, checkpoint: Path, trigger_seconds: float
) -> StreamingQuery:
    """Start the query of one channel.

    Args:
        spark: the session, with the bus registered.
        channel: what to read.
        batch: what to do with it.
        bus: directory of the bus.
        checkpoint: directory below which the query keeps its own checkpoint.
        trigger_seconds: pause between micro-batches, 0 for none.
    """

    def apply(frame: DataFrame, _batch_id: int) -> None:
        batch.apply(frame.toArrow())

    observations = spark.readStream.format(bus_source.NAME).option("directory", str(bus)).option("channel", channel)
    return (
        decode(observations.load())
        .writeStream.queryName(channel)
        .foreachBatch(apply)
        .option("checkpointLocation", str(checkpoint / channel))
        .trigger(processingTime=f"{trigger_seconds} seconds")
        .start()
    )
