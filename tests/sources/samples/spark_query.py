"""A query of Spark that reads topics of Kafka, as a process: each line of its input is a run of it, until its end.

``run`` reads all there is, and ``fail`` fails in its first batch. Each is answered with a line. The third of its
sources is not Kafka.

    python -m tests.sources.samples.spark_query SERVERS CHECKPOINT TOPIC TOPIC
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from streaming.jobs.session import build_session
from streaming.runtime.jars import jar_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK_KAFKA = "spark-kafka"


def run(servers: str, checkpoint: str, *topics: str) -> None:
    spark = build_session("reads-kafka", jars=jar_paths(SPARK_KAFKA), extra={"spark.driver.memory": "512m"})

    def records(topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
        return spark.readStream.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING) AS value")

    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    frame = frame.selectExpr("CAST(value AS STRING) AS value")
    for topic in topics:
        frame = records(topic).union(frame)
    is_failing = False

    def take(_batch: Any, _number: int) -> None:
        if is_failing:
            raise RuntimeError("asked to fail")

    for line in sys.stdin:
        is_failing = line.strip() == "fail"
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        try:
            query.trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException as failure:
            if not is_failing:
                raise
            print("failed", type(failure).__name__, flush=True)
        else:
            print("done", flush=True)


if __name__ == "__main__":
    run(*sys.argv[1:])
