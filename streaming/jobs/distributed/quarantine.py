"""Unparseable records of a batch, found and written by executors: the first ones whole, the others counted."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.delta.quarantine_rows import KEPT_BYTES, KEPT_RECORDS, OTHER_KIND, REASON_KINDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from streaming.contracts.observations import Channel
    from streaming.jobs.distributed.tables import DistributedTable

_KEY: Final = ("channel", "source", "reason_kind")


def append_refused(read: DataFrame, channel: Channel, table: DistributedTable) -> dict[str, int]:
    """Append the refused records of a batch that are not in quarantine already: a batch may come again.

    Returns:
        how many records of each source those were.
    """
    there = table.rows(read.sparkSession, table.version()).where(F.col("channel") == channel.value)
    newest = there.groupBy("source").agg(F.max("position").alias("newest"))
    kept = there.groupBy(*_KEY).agg(F.count("raw_bytes").alias("kept_records"), F.sum("raw_bytes").alias("kept_bytes"))
    fresh = (
        read.where("reason IS NOT NULL")
        .select(
            F.lit(channel.value).alias("channel"),
            "source",
            "position",
            _reason_kind().alias("reason_kind"),
            "reason",
            F.lit(1).cast("long").alias("records"),
            F.col("payload").alias("raw"),
            F.length("payload").cast("long").alias("raw_bytes"),
            F.current_timestamp().alias("quarantined_at"),
        )
        .join(F.broadcast(newest), "source", "left")
        .where("newest IS NULL OR position > newest")
        .join(F.broadcast(kept), [*_KEY], "left")
    )
    so_far = Window.partitionBy(*_KEY).orderBy("position")
    records = F.coalesce("kept_records", F.lit(0)) + F.row_number().over(so_far)
    size = F.coalesce("kept_bytes", F.lit(0)) + F.sum("raw_bytes").over(so_far)
    has_room = (records == 1) | ((records <= KEPT_RECORDS) & (size <= KEPT_BYTES))
    rows = fresh.withColumn("has_room", has_room)
    counted = (
        rows.where("NOT has_room")
        .groupBy(*_KEY)
        .agg(
            F.max("position").alias("position"),
            F.max_by("reason", "position").alias("reason"),
            F.sum("records").alias("records"),
            F.max("quarantined_at").alias("quarantined_at"),
        )
        .withColumn("raw", F.lit(None).cast("binary"))
        .withColumn("raw_bytes", F.lit(None).cast("long"))
    )
    names = table.definition.column_names()
    appended = {row["source"]: row["count"] for row in fresh.groupBy("source").count().collect()}
    table.write(rows.where("has_room").select(*names).unionByName(counted.select(*names)), "append")
    table.condense_refused()
    return appended


def _reason_kind() -> Column:
    """Return the kind of a reason: ``quarantine_rows.reason_kind`` as a column."""
    kinds = reversed(REASON_KINDS.items())
    return reduce(
        lambda rest, kind: F.when(F.col("reason").rlike(kind[1].pattern), kind[0]).otherwise(rest),
        kinds,
        F.lit(OTHER_KIND),
    )


def refused_counts(spark: SparkSession, channel: Channel, table: DistributedTable) -> dict[str, int]:
    """Count the quarantined records of a channel, per source."""
    rows = table.rows(spark, table.version()).where(F.col("channel") == channel.value)
    return {
        row["source"]: row["records"] for row in rows.groupBy("source").agg(F.sum("records").alias("records")).collect()
    }
