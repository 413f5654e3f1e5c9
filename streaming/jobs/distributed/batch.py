"""One micro-batch of the replication query in the distributed mode: read, ordered, folded and written by executors.

The driver holds the state of each source, and collects one row per source: nothing that grows with the Kafka cluster.
What was applied already is skipped by position; positions are in the source rows of the commit that applied them.
"""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark
from pyspark.sql.types import LongType, StructField, StructType

from streaming.changes.change import Change
from streaming.changes.replaced_log import newest_of, of_replaced_logs
from streaming.contracts.events import Subject
from streaming.contracts.log_position import NOWHERE
from streaming.contracts.observations import Channel
from streaming.contracts.tables import PARTITION_CHANGES, QUARANTINE
from streaming.delta.change_rows import OF_COMMIT, changes_to_arrow, in_commit
from streaming.delta.maintenance import KEEP_ALL, RetentionPolicy
from streaming.delta.positions import changed_logs
from streaming.jobs.applied import Applied, now
from streaming.jobs.distributed.batch_summary import furthest, summarise
from streaming.jobs.distributed.quarantine import append_refused, refused_counts
from streaming.jobs.distributed.rows import DROPS, ENVELOPES, NTH, ORDER, READ, ROUTED, fold_rows, read_rows, route_rows
from streaming.jobs.distributed.state import StateRows
from streaming.jobs.distributed.tables import DistributedChangeLog, DistributedTable
from streaming.jobs.distributed.tombstones import days_of, tombstones_expired
from streaming.jobs.distributed.topic_buckets import bucket_of, looked_up, of_topics
from streaming.jobs.schemas import PLAIN, table_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.contracts.log_position import LogPosition
    from streaming.contracts.state import SourceState
    from streaming.delta.positions import LastCommon
    from streaming.jobs.distributed.batch_summary import BatchSummary

ROWS_PER_FILE: Final = 100_000
_BUCKET: Final = ("cluster_id", "bucket")


class DistributedReplicationBatch:
    """Folds batches into the change log on executors. The one writer of ``partition_changes``."""

    def __init__(self, directory: Path, buckets: int, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open the tables; the first batch claims the change log.

        Args:
            directory: of the tables, shared by driver and executors.
            buckets: into how many parts the topics of a Kafka cluster are cut.
            policy: what stays of the past.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._buckets = buckets
        self._change_log = DistributedChangeLog(directory, uuid.uuid4().hex, policy)
        self._state = StateRows(directory, policy)
        self._quarantine = DistributedTable(directory, QUARANTINE, policy)
        self._version: int | None = None
        self._opened_at = self._change_log.version()
        self._sources = self._state.sources(self._opened_at)
        # Replaced as a whole: the reporter reads it from another thread.
        self._reported = self._sources, self._opened_at
        self._days = days_of(self._sources)
        self._quarantined: dict[str, int] = {}  # records in quarantine, by source
        self._replaced: tuple[Change, ...] = ()  # logs that are other ones now, not committed yet

    @property
    def positions(self) -> dict[str, int]:
        """Position of the last applied record of each source."""
        return {source: at.position for source, at in furthest(self._sources).items()}

    def position(self, source: str) -> int:
        """Return the position of the last applied record of a source, -1 for none."""
        return self.positions.get(source, -1)

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source stands."""
        return furthest(self._sources).get(source, NOWHERE)

    def go_back(self, sources: Iterable[str], last_common: LastCommon) -> dict[str, LogPosition]:
        """Go back where a log is another one now; the first batch commits that."""
        before = {source: self.at(source) for source in sources}
        changed = changed_logs(before, last_common)
        self._replaced = tuple(of_replaced_logs(self._sources, changed))
        self._quarantine.go_back_refused(Channel.REPLICATION, {source: at.position for source, at in changed.items()})
        after = [change.source_after for change in self._replaced if change.source_after is not None]
        self._sources = [*(state for state in self._sources if state.source not in changed), *after]
        return {source: before[source] for source in changed}

    def sources(self) -> tuple[list[SourceState], int]:
        """Return the state of every source, and the change log version it follows from."""
        return self._reported

    def check_ours(self) -> None:
        """Check that no other writer has claimed the change log.

        Raises:
            TableRefused: another one has.
        """
        self._change_log.check_ours()

    def apply_frame(self, frame: DataFrame) -> Applied:
        """Apply one batch.

        Raises:
            TableRefused: another job writes the same tables.
        """
        began = time.perf_counter()
        version = self._claimed(frame.sparkSession)
        self._version = None  # a batch that fails may have written: the next one claims, and reads the state anew
        changes = 0
        with ExitStack() as held:
            read = frame.mapInArrow(read_rows(self.positions), schema_of(READ)).persist()
            held.callback(read.unpersist)
            summary = summarise(read)
            if sum(summary.refused.values()):
                append_refused(read, Channel.REPLICATION, self._quarantine)
                self._quarantined = refused_counts(frame.sparkSession, Channel.REPLICATION, self._quarantine)
            if summary.observations:
                folded = self._folded(read, summary, version, held).persist()
                held.callback(folded.unpersist)
                version, changes = self._commit(folded, summary, version)
            version = self._move_where_all_was_refused(frame.sparkSession, summary, version)
            version = self._drop_tombstones(frame.sparkSession, version)
        self._version = version
        return Applied(
            observations=summary.observations,
            changes=changes,
            refused=sum(summary.refused.values()),
            version=version,
            seconds=time.perf_counter() - began,
        )

    def _claimed(self, spark: SparkSession) -> int:
        if self._version is None:
            version = self._change_log.claim(spark)
            if self._replaced:
                version = self._commit_of_driver(spark, self._replaced, version)
                self._replaced = ()
            self._version = version
            self._sources = self._state.sources(self._version)
            self._reported = self._sources, self._version
            self._quarantined = refused_counts(spark, Channel.REPLICATION, self._quarantine)
        return self._version

    def _commit_of_driver(self, spark: SparkSession, changes: Sequence[Change], version: int) -> int:
        """Append a few changes that no executor made, if there are any; return the new version."""
        if not changes:
            return version
        rows = in_commit(changes_to_arrow(changes), version + 1, now())
        version = self._change_log.commit(spark.createDataFrame(rows, table_schema(PARTITION_CHANGES.name)), version)
        self._sources = self._state.sources(version)
        self._reported = self._sources, version
        return version

    def _move_where_all_was_refused(self, spark: SparkSession, summary: BatchSummary, version: int) -> int:
        """Move the logs of which every record of a batch was refused, as ``ReplicationBatch`` does; return the version.

        Refused records have no time, so the change carries that of the source's newest applied observation.
        """
        applied = furthest(self._sources)
        changes = [
            Change(
                subject=Subject.SOURCE,
                observation=newest_of(state),
                source_after=state._replace(
                    position=summary.positions[state.source],
                    log_id=summary.log_ids[state.source],
                    quarantined=self._quarantined.get(state.source, 0),
                ),
            )
            for state in self._sources
            if state.source in summary.refused and applied[state.source].position < summary.positions[state.source]
        ]
        return self._commit_of_driver(spark, changes, version)

    def _drop_tombstones(self, spark: SparkSession, version: int) -> int:
        """Drop the tombstones that have expired, if a day has begun; return the version.

        What a kill prevents is done when the next day begins.
        """
        before, self._days = self._days, days_of(self._sources)
        if self._days <= before:
            return version
        return self._commit_of_driver(spark, tombstones_expired(*self._state.at(spark, version)), version)

    def _folded(self, read: DataFrame, summary: BatchSummary, version: int, held: ExitStack) -> DataFrame:
        """Fold each bucket over its part of the state.

        A bucket gets its own observations whole, and of the others what ``changes.buckets`` routes to it.
        """
        few, partitions = self._state.at(read.sparkSession, version)
        bucket = bucket_of(F.col("cluster_id"), F.col("topic"), self._buckets)
        envelopes = read.where("reason IS NULL").withColumn("bucket", bucket).select(*ENVELOPES)
        routed = (
            few.groupBy("cluster_id")
            .cogroup(envelopes.groupBy("cluster_id"))
            .applyInArrow(route_rows(self._buckets), schema_of(ROUTED))
            .persist()
        )
        held.callback(routed.unpersist)
        observations = routed.join(read.select("source", "position", "payload"), ["source", "position"], "left")
        topics = read.where("topic != ''").select("cluster_id", "topic").distinct()
        few_of_each = few.join(routed.select(*_BUCKET).distinct(), "cluster_id")
        state = (
            of_topics(partitions, topics, summary.whole_clusters)
            .withColumn("bucket", bucket)
            .unionByName(few_of_each.where("bucket = 0 OR subject != 'broker'"))
        )
        return state.groupBy(*_BUCKET).cogroup(observations.groupBy(*_BUCKET)).applyInArrow(fold_rows, folded_schema())

    def _commit(self, folded: DataFrame, summary: BatchSummary, version: int) -> tuple[int, int]:
        """Append the changes, in the order of the batch; return the new version, and how many changes there were."""
        of_cluster = F.concat_ws("/", "cluster_id", "source")  # a log may hold what is of two clusters
        counts = folded.groupBy(of_cluster.alias("source")).agg(
            F.sum(DROPS).alias("drops"), F.count_if(F.col(DROPS).isNull()).alias("rows")
        )
        per_source = counts.collect()
        changes = sum(row["rows"] for row in per_source)
        after, source = F.col("source_after"), F.col("source")
        drops = {row["source"]: row["drops"] for row in per_source if row["drops"]}
        # A source's row holds what no bucket knows alone: its position, and what all buckets dropped or refused of it.
        source_after = (
            after.withField("position", looked_up(source, summary.positions, 0))
            .withField("log_id", looked_up(source, summary.log_ids, None))
            .withField("duplicates", after["duplicates"] + looked_up(of_cluster, drops, 0))
            .withField("quarantined", looked_up(source, self._quarantined, 0))
        )
        rows = folded.where(f"{DROPS} IS NULL").withColumn("source_after", F.when(after.isNotNull(), source_after))
        files = 1 + changes // ROWS_PER_FILE
        cut = rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, ORDER, NTH)
        ordered = cut.sortWithinPartitions(ORDER, "topic_id", "partition", NTH)
        # The ids grow within a partition and from one to the next, and the partitions are ranges of the order.
        numbered = (
            ordered.withColumn("ordinal", F.monotonically_increasing_id())
            .withColumn("version", F.lit(version + 1).cast("long"))
            .withColumn("committed_at", F.current_timestamp())
        )
        committed = self._change_log.commit(numbered.select(*PARTITION_CHANGES.column_names()), version)
        self._sources = self._state.sources(committed)
        self._reported = self._sources, committed
        return committed, changes


def schema_of(plain: Mapping[str, str]) -> StructType:
    """Return the columns between two steps as a Spark schema."""
    return StructType([StructField(name, PLAIN[kind]) for name, kind in plain.items()])


def folded_schema() -> StructType:
    """Return ``rows.folded_schema`` as a Spark schema."""
    fields = (field for field in table_schema(PARTITION_CHANGES.name) if field.name not in OF_COMMIT)
    columns = [StructField(field.name, field.dataType) for field in fields]
    extra = [StructField(ORDER, LongType()), StructField(NTH, PLAIN["int"]), StructField(DROPS, LongType())]
    return StructType([*columns, *extra])
