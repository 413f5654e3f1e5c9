"""What is true at a version of the truth, as rows for the fold: the state tables, and the changes after them.

All rows have the form of ``partition_changes``: what is true after a row is what the row says, and of each key the
last one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.changes.change import Subject
from streaming.changes.state import ReplicationState
from streaming.contracts.columns import BROKER_STATE, CLUSTER_STATE, PARTITION_STATE, SOURCE_STATE
from streaming.contracts.observations import Channel
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    SOURCE_PROGRESS,
)
from streaming.delta.progress import ProgressTable
from streaming.delta.rows import plain, put_source
from streaming.delta.tail import files_between
from streaming.jobs.cluster_tables import ORDER, ClusterTable, changes_between
from streaming.schemas import table_schema

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.changes.state import SourceState
    from streaming.contracts.columns import Column, Table

# Table -> whose state, and the struct of ``partition_changes`` that says it.
_STATES: Final[dict[str, tuple[Subject, str, tuple[Column, ...]]]] = {
    PARTITION_STATE_TABLE.name: (Subject.PARTITION, "after", PARTITION_STATE),
    BROKER_STATE_TABLE.name: (Subject.BROKER, "broker_after", BROKER_STATE),
    CLUSTER_STATE_TABLE.name: (Subject.CLUSTER, "cluster_after", CLUSTER_STATE),
    SOURCE_PROGRESS.name: (Subject.SOURCE, "source_after", SOURCE_STATE),
}
KNOWN: Final = (
    "subject", "cluster_id", "cluster", "topic_id", "topic", "partition", "broker", "source", "authority",
    *(struct for _, struct, _ in _STATES.values()),
)  # fmt: skip
_OF_SOURCE: Final = ("subject", "cluster_id", "cluster", "source", "authority")
_IS_PARTITION: Final = "subject = 'partition'"


class KnownState:
    """Reads the state at a version of the truth."""

    def __init__(self, directory: Path) -> None:
        """Open or create the state tables.

        Raises:
            TableRefused: one is not ours, or newer than this program.
        """
        self._truth = directory / PARTITION_CHANGES.name
        self._tables = [ClusterTable(directory, table) for table in _definitions()]

    def sources(self, version: int) -> dict[str, SourceState]:
        """Read how far each source was applied, on the driver: there are as many rows as sources and commits."""
        progress = ProgressTable(self._truth.parent, Channel.REPLICATION)
        state = ReplicationState()
        for row in progress.rows():
            put_source(state, row)
        replay_sources(state, self._truth, progress.as_of_version, version)
        return {source.source: source for source in state.sources.values()}

    def at(self, spark: SparkSession, version: int) -> tuple[DataFrame, DataFrame]:
        """Give what is known of clusters, brokers and sources, which is little, and what is known of partitions."""
        seen = {table: table.as_of() for table in self._tables}
        oldest = min(as_of for _, as_of in seen.values())
        after = changes_between(spark, self._truth, oldest, version).select(*KNOWN, ORDER)
        few, partitions = after.where(f"NOT {_IS_PARTITION}"), after.where(_IS_PARTITION)
        for table, (at, _) in seen.items():
            found = table.rows(spark, at)
            if table.definition.name == SOURCE_PROGRESS.name:
                found = found.where(F.col("channel") == Channel.REPLICATION.value)
            rows = as_changes(found, table.definition.name)
            if table.definition.name == PARTITION_STATE_TABLE.name:
                partitions = partitions.unionByName(rows)
            else:
                few = few.unionByName(rows)
        return few, partitions


def replay_sources(state: ReplicationState, truth: Path, after: int, upto: int) -> None:
    """Read what the versions after one, up to another, say of sources."""
    for file in files_between(truth, after, upto):
        rows = pq.ParquetFile(file).read([*_OF_SOURCE, "source_after"])
        for row in plain(rows.filter(pc.equal(rows["subject"], Subject.SOURCE.value))).to_pylist():
            put_source(state, {**row, **row["source_after"]})


def as_changes(rows: DataFrame, table: str) -> DataFrame:
    """Write rows of a state table as the changes that would lead there; they come before all others."""
    subject, struct, columns = _STATES[table]
    types = {field.name: field.dataType for field in table_schema(PARTITION_CHANGES.name)}
    found = {
        **{name: F.col(name) for name in rows.columns if name in KNOWN},
        "subject": F.lit(subject.value),
        struct: F.struct(*(F.col(column.name) for column in columns)).cast(types[struct]),
    }
    nothing = {name: F.lit(None).cast(types[name]) for name in KNOWN if name not in found}
    named = {**nothing, **found}
    return rows.select(*(named[name].alias(name) for name in KNOWN), F.lit(-1).cast("long").alias(ORDER))


def _definitions() -> tuple[Table, ...]:
    return PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, SOURCE_PROGRESS
