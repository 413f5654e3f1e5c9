"""One small stream that a standby runs before it waits: it loads what the first batch of a stream otherwise loads.

Java loads the classes of streams, and Spark starts the Python processes that plan and read; a query that starts later
has them. Nothing of the job is read or written.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark.errors import PySparkException

from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.observations import Channel
from streaming.jobs.streams.bus_source import bus_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "warm-up"
LONGEST_SECONDS: Final = 120.0
_SEGMENT_BYTES: Final = 4096


def warm_up(spark: SparkSession, *, has_directory: bool, is_over: Callable[[], bool]) -> None:
    """Run the stream until it has applied one batch; a failure is left to the queries, which report their own.

    Unless the bus is a directory, a source of Spark stands in for Kafka's, with Python on executors.
    """
    applied = threading.Event()

    def apply(rows: DataFrame, _batch_id: int) -> None:
        rows.toArrow()
        applied.set()

    try:
        with TemporaryDirectory(prefix=f"isrwatch-{NAME}-", ignore_cleanup_errors=True) as folder:
            rows = _of_directory(spark, Path(folder, "bus")) if has_directory else _of_spark(spark)
            stream = rows.writeStream.queryName(NAME).foreachBatch(apply)
            stream = stream.option("checkpointLocation", str(Path(folder, "checkpoint")))
            query = stream.trigger(processingTime="2 seconds").start()
            given_up_at = time.monotonic() + LONGEST_SECONDS
            while query.isActive and time.monotonic() < given_up_at and not is_over():
                # Between batches: Spark logs the stack of one that is stopped in the middle.
                if applied.wait(0.05) and not query.status["isTriggerActive"]:
                    break
            query.stop()
    except (PySparkException, Py4JError, OSError):
        return


def _of_directory(spark: SparkSession, bus: Path) -> DataFrame:
    with closing(DirectoryPublisher(bus, segment_bytes=_SEGMENT_BYTES, fsync=False)) as publisher:
        publisher.publish_raw(Channel.SAMPLES, NAME, b"nothing")
    return bus_stream(spark, bus, Channel.SAMPLES, {}, _SEGMENT_BYTES, wait_seconds=0.0)


def _of_spark(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load().select("value").mapInArrow(_same, "value long")


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
