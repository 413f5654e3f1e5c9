"""What derives from the change log, written behind it by Spark: events, and state of partitions, brokers, clusters.

Each table holds the change log version that it is true of, in the commit that writes it, as in the driver mode: so each
mode continues where the other stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.contracts.columns import CLUSTER, PARTITION_IDENTITY
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    REPLICATION_EVENTS,
)
from streaming.delta.maintenance import KEEP_ALL, RetentionPolicy
from streaming.jobs.distributed.state import ORDER, StateRows
from streaming.jobs.distributed.summaries import ENTRY_TYPES, ISR_REMOVAL, explode_events, summary_rows, tally_rows
from streaming.jobs.distributed.tables import DistributedTable, changes_between
from streaming.jobs.distributed.tombstones import has_expired
from streaming.jobs.distributed.topic_buckets import newest_by
from streaming.jobs.schemas import table_schema

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

_SUMMARIES: Final = (CLUSTER_STATE_TABLE, BROKER_STATE_TABLE)
_KEY: Final = PARTITION_STATE_TABLE.key


class DistributedProjections:
    """The one writer of every table that derives from the change log, in the distributed mode."""

    def __init__(self, directory: Path, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open the tables.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._change_log = DistributedTable(directory, PARTITION_CHANGES, policy)
        self._state = StateRows(directory, policy)
        self._events = DistributedTable(directory, REPLICATION_EVENTS, policy)
        self._partitions = DistributedTable(directory, PARTITION_STATE_TABLE, policy)
        self._summaries = [DistributedTable(directory, table, policy) for table in _SUMMARIES]

    def project(self) -> bool:
        """Write every table that lags behind the change log; return whether any did."""
        version = self._change_log.version()
        tables = (self._events, self._partitions, *self._summaries)
        if all(table.as_of()[1] >= version for table in tables):
            return False
        spark = SparkSession.builder.getOrCreate()
        self._append_events(spark, version)
        self._write_partitions(spark, version)
        self._write_summaries(spark, version)
        return True

    def _append_events(self, spark: SparkSession, version: int) -> None:
        as_of = self._events.as_of()[1]
        if as_of < version:
            changes = self._changes(spark, as_of, version)
            schema = table_schema(REPLICATION_EVENTS.name)
            self._events.write(changes.mapInArrow(explode_events, schema), "append", version)

    def _write_partitions(self, spark: SparkSession, version: int) -> None:
        """Replace what changed, keep the rest."""
        at, as_of = self._partitions.as_of()
        if as_of >= version:
            return
        identity = [column.name for column in (*CLUSTER, *PARTITION_IDENTITY)]
        changes = self._changes(spark, as_of, version).where("subject = 'partition'")
        newest = newest_by(changes.select(*identity, "after", *ORDER), _KEY, [F.col(name) for name in ORDER]).persist()
        try:
            changed = newest.select(*identity, "after.*")
            kept = self._partitions.rows(spark, at).join(F.broadcast(newest.select(*_KEY)), list(_KEY), "left_anti")
            rows = kept.drop("as_of_version").unionByName(changed).where(~has_expired(self._dropped(spark, version)))
            self._partitions.write(rows.withColumn("as_of_version", F.lit(version).cast("long")), "overwrite", version)
        finally:
            newest.unpersist()

    def _dropped(self, spark: SparkSession, version: int) -> dict[str, int]:
        """Return up to when each cluster has dropped its tombstones."""
        clusters = self._state.at(spark, version)[0].where("subject = 'cluster'")
        dropped = clusters.groupBy("cluster_id").agg(F.max("cluster_after.tombstones_until").alias("until"))
        micros = dropped.where("until IS NOT NULL").select("cluster_id", F.unix_micros("until").alias("until"))
        return {row["cluster_id"]: row["until"] for row in micros.collect()}

    def _write_summaries(self, spark: SparkSession, version: int) -> None:
        behind = [table for table in self._summaries if table.as_of()[1] < version]
        numbers = self._numbers(spark, version).persist()
        few = self._state.at(spark, version)[0].persist()
        try:
            for table in behind:
                name = table.definition.name
                both = few.groupBy("cluster_id").cogroup(numbers.groupBy("cluster_id"))
                rows = both.applyInArrow(summary_rows(name, version), table_schema(name))
                table.write(rows.coalesce(1), "overwrite", version)
        finally:
            numbers.unpersist()
            few.unpersist()

    def _numbers(self, spark: SparkSession, version: int) -> DataFrame:
        """Count partitions, and brokers that left an ISR; one row per number of a broker or cluster."""
        partitions = self._partitions.rows(spark, self._partitions.as_of()[0]).drop("as_of_version")
        tallies = partitions.mapInArrow(tally_rows, ENTRY_TYPES)
        brokers = next(table for table in self._summaries if table.definition is BROKER_STATE_TABLE)
        at, as_of = brokers.as_of()
        left = F.explode("isr_departures").alias("left")
        removals = brokers.rows(spark, at).select("cluster_id", "broker", left)
        before = removals.select("cluster_id", "broker", "left.cause", F.col("left.departures").alias("value"))
        who = F.explode("left_isr").alias("broker")
        since = self._changes(spark, as_of, version).select("cluster_id", who, "cause", F.lit(1).alias("value"))
        departures = before.unionByName(since).select(
            "cluster_id",
            F.lit(ISR_REMOVAL).alias("entry"),
            "broker",
            F.col("cause").alias("name"),
            F.col("value").cast("decimal(38,0)").alias("value"),
        )
        added = tallies.unionByName(departures).groupBy("cluster_id", "entry", "broker", "name")
        return added.agg(F.sum("value").cast("decimal(38,0)").alias("value"))

    def _changes(self, spark: SparkSession, after: int, upto: int) -> DataFrame:
        return changes_between(spark, self._change_log.path, after, upto)
