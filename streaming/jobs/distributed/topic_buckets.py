"""Rows of a batch and of the state, cut into buckets of topics. Knows columns; ``changes.buckets`` has the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame


def bucket_of(cluster_id: Column, topic: Column, buckets: int) -> Column:
    """Return the bucket of a topic by its name, from 1; where there is no topic 0, the bucket of the cluster."""
    number = F.crc32(F.concat_ws("/", cluster_id, topic).cast("binary")) % buckets + 1
    return F.when(F.coalesce(topic, F.lit("")) != "", number).otherwise(0).cast("int")


def of_topics(frame: DataFrame, topics: DataFrame, whole_clusters: Sequence[str]) -> DataFrame:
    """Keep the rows of some topics (cluster and name), and every row of some clusters."""
    some = frame.join(topics, ["cluster_id", "topic"], "left_semi")
    if not whole_clusters:
        return some
    is_whole = F.col("cluster_id").isin(*whole_clusters)
    return frame.where(is_whole).unionByName(some.where(~is_whole))


def newest_by(frame: DataFrame, key: Sequence[str], order: Sequence[Column]) -> DataFrame:
    """Keep the last row per key in an order."""
    columns = [name for name in frame.columns if name not in key]
    newest = F.max_by(F.struct(*columns), F.struct(*(order)))
    return frame.groupBy(*key).agg(newest.alias("newest")).select(*key, "newest.*")


def looked_up(key: Column, values: Mapping[str, int] | Mapping[str, int | None], default: int | None) -> Column:
    """Return the value of a key in a small mapping."""
    value_of = F.lit(default).cast("long")
    for name, value in values.items():
        value_of = F.when(key == name, F.lit(value).cast("long")).otherwise(value_of)
    return value_of
