"""The state at a version of the change log, as rows for the fold: the state tables, and the changes after them.

All rows have columns of ``partition_changes``: each row holds the state after it, and of each key the last one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.changes.state import ReplicationState
from streaming.contracts.columns import COMMIT_ORDER
from streaming.contracts.events import Subject
from streaming.contracts.observations import Channel
from streaming.contracts.state import BROKER_STATE, CLUSTER_STATE, PARTITION_STATE, SOURCE_STATE
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    SOURCE_PROGRESS,
)
from streaming.delta.change_reader import rows_between
from streaming.delta.maintenance import KEEP_ALL, RetentionPolicy
from streaming.delta.progress import ProgressTable
from streaming.delta.state_reader import apply_changes
from streaming.jobs.distributed.tables import DistributedTable, changes_between
from streaming.jobs.schemas import table_schema

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.contracts.columns import Column, Table
    from streaming.contracts.state import SourceState

# Table -> whose state, and the struct of ``partition_changes`` that holds it.
_STATES: Final[dict[str, tuple[Subject, str, tuple[Column, ...]]]] = {
    PARTITION_STATE_TABLE.name: (Subject.PARTITION, "after", PARTITION_STATE),
    BROKER_STATE_TABLE.name: (Subject.BROKER, "broker_after", BROKER_STATE),
    CLUSTER_STATE_TABLE.name: (Subject.CLUSTER, "cluster_after", CLUSTER_STATE),
    SOURCE_PROGRESS.name: (Subject.SOURCE, "source_after", SOURCE_STATE),
}
STATE_COLUMNS: Final = (
    "subject", "cluster_id", "cluster", "topic_id", "topic", "partition", "broker", "source", "authority",
    *(struct for _, struct, _ in _STATES.values()),
)  # fmt: skip
ORDER: Final = tuple(column.name for column in COMMIT_ORDER)
_IS_PARTITION: Final = "subject = 'partition'"


class StateRows:
    """Reads the state at a version of the change log."""

    def __init__(self, directory: Path, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open or create the state tables.

        Raises:
            TableRefused: one is not ours, or newer than this program.
        """
        self._path = directory / PARTITION_CHANGES.name
        self._tables = [DistributedTable(directory, table, policy) for table in _definitions()]

    def sources(self, version: int) -> list[SourceState]:
        """Return the state of each source of each cluster, read on the driver: as many rows as sources and commits."""
        state = ReplicationState()
        progress = ProgressTable(self._path.parent, Channel.REPLICATION)
        for source in progress.sources():
            state.put_source(source)
        changes = rows_between(self._path, progress.as_of_version, version)
        apply_changes(state, changes.filter(pc.equal(changes["subject"], Subject.SOURCE.value)))
        return list(state.sources.values())

    def at(self, spark: SparkSession, version: int) -> tuple[DataFrame, DataFrame]:
        """Return the rows of clusters, brokers and sources, which are few, and the rows of partitions."""
        as_of = {table: table.as_of() for table in self._tables}
        oldest = min(version_of_changes for _, version_of_changes in as_of.values())
        after = changes_between(spark, self._path, oldest, version).select(*STATE_COLUMNS, *ORDER)
        few, partitions = after.where(f"NOT {_IS_PARTITION}"), after.where(_IS_PARTITION)
        for table, (at, _) in as_of.items():
            state = table.rows(spark, at)
            if table.definition.name == SOURCE_PROGRESS.name:
                state = state.where(F.col("channel") == Channel.REPLICATION.value)
            rows = as_changes(state, table.definition.name)
            if table.definition.name == PARTITION_STATE_TABLE.name:
                partitions = partitions.unionByName(rows)
            else:
                few = few.unionByName(rows)
        return few, partitions


def as_changes(rows: DataFrame, table: str) -> DataFrame:
    """Return rows of a state table as changes that lead to that state; they come before all others."""
    subject, struct, columns = _STATES[table]
    types = {field.name: field.dataType for field in table_schema(PARTITION_CHANGES.name)}
    given = {
        **{name: F.col(name) for name in rows.columns if name in STATE_COLUMNS},
        "subject": F.lit(subject.value),
        struct: F.struct(*(F.col(column.name) for column in columns)).cast(types[struct]),
    }
    nulls = {name: F.lit(None).cast(types[name]) for name in STATE_COLUMNS if name not in given}
    columns_of = {**nulls, **given}
    first = (F.lit(-1).cast("long").alias(name) for name in ORDER)
    return rows.select(*(columns_of[name].alias(name) for name in STATE_COLUMNS), *first)


def _definitions() -> tuple[Table, ...]:
    return PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, SOURCE_PROGRESS
