"""Unparseable records of a batch, kept verbatim: found and written by executors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streaming.contracts.observations import Channel
    from streaming.jobs.distributed.tables import DistributedTable


def append_refused(read: DataFrame, channel: Channel, table: DistributedTable) -> None:
    """Append the refused records of a batch that are not in quarantine already: a batch may come again."""
    refused = read.where("reason IS NOT NULL").select(
        F.lit(channel.value).alias("channel"),
        "source",
        "position",
        "reason",
        F.col("payload").alias("raw"),
        F.current_timestamp().alias("quarantined_at"),
    )
    quarantined = table.rows(read.sparkSession, table.version())
    table.write(refused.join(quarantined, ["channel", "source", "position"], "left_anti"), "append")


def refused_counts(spark: SparkSession, channel: Channel, table: DistributedTable) -> dict[str, int]:
    """Count the quarantined records of a channel, per source."""
    rows = table.rows(spark, table.version()).where(F.col("channel") == channel.value)
    return {row["source"]: row["count"] for row in rows.groupBy("source").count().collect()}
