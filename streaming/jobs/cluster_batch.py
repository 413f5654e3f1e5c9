"""One micro-batch of the replication query in the cluster form: read, ordered, folded and written by executors.

The driver holds one number a source, and what it collects has a row a source: nothing that grows with the cluster.
What was applied already is skipped by position, and positions stand in the source rows of the same commit.
"""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark
from pyspark.sql.types import LongType, StructField, StructType

from streaming.contracts.observations import Channel
from streaming.contracts.tables import PARTITION_CHANGES, QUARANTINE
from streaming.jobs.batch import Applied
from streaming.jobs.cluster_rows import DROPS, NTH, ORDER, READ, ROUTED, SEEN, fold_rows, read_rows, route_rows
from streaming.jobs.cluster_state import KnownState
from streaming.jobs.cluster_tables import ClusterTable, ClusterTruth
from streaming.schemas import PLAIN, table_schema
from streaming.transforms.buckets import bucket_of, looked_up, of_topics

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.changes.state import SourceState

ROWS_A_FILE: Final = 100_000
_BUCKET: Final = ("cluster_id", "bucket")


@dataclass(frozen=True, slots=True)
class Heard:
    """What a batch brings, a value a source: how far it goes, what was refused, and which clusters it tells whole."""

    positions: Mapping[str, int]
    refused: Mapping[str, int]
    observations: int
    whole: tuple[str, ...]


class ClusterReplicationBatch:
    """Folds batches into the truth on executors. The one writer of ``partition_changes``."""

    def __init__(self, directory: Path, buckets: int) -> None:
        """Open the tables; the truth is claimed with the first batch.

        Args:
            directory: of the tables, shared by driver and executors.
            buckets: into how many parts the topics of a cluster are cut.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self.directory = directory
        self._buckets = buckets
        self._truth = ClusterTruth(directory, uuid.uuid4().hex)
        self._known = KnownState(directory)
        self._quarantine = ClusterTable(directory, QUARANTINE)
        self._version: int | None = None
        self._opened_at = self._truth.version()
        self._sources = self._known.sources(self._opened_at)
        self._told = list(self._sources.values()), self._opened_at
        self._quarantined: dict[str, int] = {}  # how many records of each source stand in quarantine

    @property
    def positions(self) -> dict[str, int]:
        """How far each source was applied."""
        return {name: source.position for name, source in self._sources.items()}

    @property
    def is_empty(self) -> bool:
        """Whether the tables hold nothing yet."""
        return self._opened_at <= 0

    def position(self, source: str) -> int:
        """Give the position of the last applied observation of a source, -1 for none."""
        return self.positions.get(source, -1)

    def sources(self) -> tuple[list[SourceState], int]:
        """Give how far every source came, and the version of the truth that says so."""
        return self._told

    def check_ours(self) -> None:
        """Look whether somebody else writes the truth since.

        Raises:
            TableRefused: somebody does.
        """
        self._truth.check_ours()

    def apply_frame(self, frame: DataFrame) -> Applied:
        """Apply one batch.

        Raises:
            TableRefused: another job writes the same tables.
        """
        began = time.perf_counter()
        version = self._claimed(frame.sparkSession)
        self._version = None  # until this batch is through, nobody knows what is written
        changes = 0
        with ExitStack() as held:
            read = frame.mapInArrow(read_rows(self.positions), schema_of(READ)).persist()
            held.callback(read.unpersist)
            heard = hear(read)
            if sum(heard.refused.values()):
                quarantine(read, Channel.REPLICATION, self._quarantine)
                self._quarantined = quarantined(frame.sparkSession, Channel.REPLICATION, self._quarantine)
            if heard.observations:
                folded = self._folded(read, heard, version, held).persist()
                held.callback(folded.unpersist)
                version, changes = self._commit(folded, heard, version)
        self._version = version
        return Applied(
            observations=heard.observations,
            changes=changes,
            refused=sum(heard.refused.values()),
            version=version,
            seconds=time.perf_counter() - began,
        )

    def _claimed(self, spark: SparkSession) -> int:
        if self._version is None:
            self._version = self._truth.claim(spark)
            self._sources = self._known.sources(self._version)
            self._told = list(self._sources.values()), self._version
            self._quarantined = quarantined(spark, Channel.REPLICATION, self._quarantine)
        return self._version

    def _folded(self, read: DataFrame, heard: Heard, version: int, held: ExitStack) -> DataFrame:
        """Fold each bucket over what it knows and sees."""
        few, partitions = self._known.at(read.sparkSession, version)
        bucket = bucket_of(F.col("cluster_id"), F.col("topic"), self._buckets)
        seen = read.where("reason IS NULL").withColumn("bucket", bucket).select(*SEEN)
        routed = (
            few.groupBy("cluster_id")
            .cogroup(seen.groupBy("cluster_id"))
            .applyInArrow(route_rows(self._buckets), schema_of(ROUTED))
            .persist()
        )
        held.callback(routed.unpersist)
        told = routed.join(read.select("source", "position", "payload"), ["source", "position"], "left")
        topics = read.where("topic != ''").select("cluster_id", "topic").distinct()
        few_of_each = few.join(routed.select(*_BUCKET).distinct(), "cluster_id")
        known = (
            of_topics(partitions, topics, heard.whole)
            .withColumn("bucket", bucket)
            .unionByName(few_of_each.where("bucket = 0 OR subject != 'broker'"))
        )
        return known.groupBy(*_BUCKET).cogroup(told.groupBy(*_BUCKET)).applyInArrow(fold_rows, folded_schema())

    def _commit(self, folded: DataFrame, heard: Heard, version: int) -> tuple[int, int]:
        """Append what was folded, in the order of the batch; give the new version, and how many changes that were."""
        counts = folded.groupBy("source").agg(
            F.sum(DROPS).alias("drops"), F.count_if(F.col(DROPS).isNull()).alias("rows")
        )
        told = counts.collect()
        changes = sum(row["rows"] for row in told)
        after, source = F.col("source_after"), F.col("source")
        drops = {row["source"]: row["drops"] for row in told if row["drops"]}
        placed = (
            after.withField("position", looked_up(source, heard.positions, 0))
            .withField("duplicates", after["duplicates"] + looked_up(source, drops, 0))
            .withField("quarantined", looked_up(source, self._quarantined, 0))
        )
        rows = folded.where(f"{DROPS} IS NULL").withColumn("source_after", F.when(after.isNotNull(), placed))
        files = 1 + changes // ROWS_A_FILE
        cut = rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, ORDER, NTH)
        ordered = cut.sortWithinPartitions("date", ORDER, "topic_id", "partition", NTH)
        committed = self._truth.commit(ordered.select(*PARTITION_CHANGES.column_names()), version)
        self._sources = self._known.sources(committed)
        self._told = list(self._sources.values()), committed
        return committed, changes


def schema_of(plain: Mapping[str, str]) -> StructType:
    """Spell the columns between two steps in Spark types."""
    return StructType([StructField(name, PLAIN[kind]) for name, kind in plain.items()])


def folded_schema() -> StructType:
    """Spell ``cluster_rows.folded_schema`` in Spark types."""
    columns = [StructField(field.name, field.dataType) for field in table_schema(PARTITION_CHANGES.name)]
    extra = [StructField(ORDER, LongType()), StructField(NTH, PLAIN["int"]), StructField(DROPS, LongType())]
    return StructType([*columns, *extra])


def hear(read: DataFrame) -> Heard:
    """Collect what a batch brings, a row a source."""
    rows = (
        read.groupBy("source")
        .agg(
            F.max("position").alias("position"),
            F.count_if(F.col("reason").isNotNull()).alias("refused"),
            F.count_if(F.col("reason").isNull()).alias("understood"),
            F.collect_set(F.when(F.col("concerns_all"), F.col("cluster_id"))).alias("whole"),
        )
        .collect()
    )
    return Heard(
        positions={row["source"]: row["position"] for row in rows},
        refused={row["source"]: row["refused"] for row in rows if row["refused"]},
        observations=sum(row["understood"] for row in rows),
        whole=tuple(sorted({cluster_id for row in rows for cluster_id in row["whole"]})),
    )


def quarantine(read: DataFrame, channel: Channel, table: ClusterTable) -> None:
    """Append what was refused, unless it stands there already."""
    refused = read.where("reason IS NOT NULL").select(
        F.lit(channel.value).alias("channel"),
        "source",
        "position",
        "reason",
        F.col("payload").alias("raw"),
        F.current_timestamp().alias("quarantined_at"),
    )
    known = table.rows(read.sparkSession, table.version())
    table.write(refused.join(known, ["channel", "source", "position"], "left_anti"), "append")


def quarantined(spark: SparkSession, channel: Channel, table: ClusterTable) -> dict[str, int]:
    """Count what stands in quarantine, a row a source."""
    rows = table.rows(spark, table.version()).where(F.col("channel") == channel.value)
    return {row["source"]: row["count"] for row in rows.groupBy("source").count().collect()}
