"""Reads the state: *state = the state tables + the changes after them*.

The job's fold and the exporter's snapshots both start this way, and then apply the changes. Each state table has the
version of the change log up to which it was computed; the versions differ when the job was killed between two tables.
So only the changes after its own version are applied to each part. Later rows of a key replace earlier ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.events import Cause, Subject
from streaming.contracts.observations import Channel
from streaming.contracts.state import BrokerState, ClusterState, ConfigKey, ConfigValue, PartitionState, SourceState
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    SOURCE_PROGRESS,
)
from streaming.delta.arrow_values import last_of_each
from streaming.delta.queries import open_ours, select
from streaming.delta.state_rows import CONFIG_COLUMNS, configs_of, states_of, structs_of
from streaming.delta.table_log import BEFORE_FIRST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from deltalake import DeltaTable

    from streaming.contracts.columns import Table
    from streaming.contracts.identifiers import BrokerId, ClusterId

# Of fewer rows, to choose costs more than to read them all.
_WORTH_CHOOSING: Final = 500
Configs = tuple[tuple[ConfigKey, ConfigValue], ...]


class StateHolder(Protocol):
    """Receives a state: ``ReplicationState`` in the job, ``SnapshotDraft`` in the exporter."""

    def put_cluster(self, cluster: ClusterState, configs: Configs) -> None:
        """Set a cluster, and the configured values that its row carries."""

    def put_broker(self, broker: BrokerState) -> None:
        """Set a broker."""

    def put_partition(self, partition: PartitionState) -> None:
        """Set a partition, or its tombstone."""

    def put_source(self, source: SourceState) -> None:
        """Set how far a source was applied; this may advance the watermarks of its cluster."""


class TotalsHolder(StateHolder, Protocol):
    """Receives a state and the number of ISR removals per broker and cause."""

    def put_partitions(self, rows: pa.Table) -> None:
        """Set the partitions of ``partition_state``, tombstones included."""

    def add_isr_removals(self, cluster_id: ClusterId, cluster: str, broker: BrokerId, cause: str, count: int) -> None:
        """Count how often a broker was removed from an ISR, for one cause."""


class AsOf(NamedTuple):
    """The version of ``partition_changes`` up to which each part of a state was computed."""

    partitions: int = BEFORE_FIRST
    brokers: int = BEFORE_FIRST
    clusters: int = BEFORE_FIRST
    sources: int = BEFORE_FIRST

    def oldest(self) -> int:
        """Return the version after which the changes must be read."""
        return min(self)


def as_of_version(table: DeltaTable) -> int:
    """Return the version of ``partition_changes`` up to which a derived table was computed; its commit carries it."""
    version = table.transaction_version(PARTITION_CHANGES.name)
    return BEFORE_FIRST if version is None else int(version)


def load_state(directory: Path, holder: TotalsHolder) -> AsOf:
    """Read the state tables; clusters first, because their rows say which tombstones are dropped."""
    clusters, clusters_as_of = _read(directory, CLUSTER_STATE_TABLE)
    for cluster, configured in _clusters(clusters, states_of(ClusterState, clusters)):
        holder.put_cluster(cluster, configured)
    brokers, brokers_as_of = _read(directory, BROKER_STATE_TABLE)
    removals = brokers["isr_departures"].to_pylist()
    for broker, causes in zip(states_of(BrokerState, brokers), removals, strict=True):
        holder.put_broker(broker)
        for each in causes or ():
            cause = each["cause"] or Cause.UNKNOWN.value
            holder.add_isr_removals(broker.cluster_id, broker.cluster, broker.broker, cause, each["departures"])
    partitions, partitions_as_of = _read(directory, PARTITION_STATE_TABLE)
    holder.put_partitions(partitions)
    sources, sources_as_of = _read(directory, SOURCE_PROGRESS)
    for source in states_of(SourceState, sources.filter(pc.equal(sources["channel"], Channel.REPLICATION.value))):
        holder.put_source(source)
    return AsOf(partitions_as_of, brokers_as_of, clusters_as_of, sources_as_of)


def _read(directory: Path, definition: Table) -> tuple[pa.Table, int]:
    """Read a state table, and the version of the change log up to which it was computed."""
    table = open_ours(directory, definition)
    if table is None:
        return select(None, definition), BEFORE_FIRST
    return select(table, definition), as_of_version(table)


def apply_changes(holder: StateHolder, rows: pa.Table, as_of: AsOf | None = None) -> None:
    """Apply rows of ``partition_changes``, in their order; each row has the state after its change.

    Args:
        holder: the state before them.
        rows: of any number of versions.
        as_of: the versions that the holder contains already; None: none of these rows.
    """
    subjects = set(pc.unique(rows["subject"]).to_pylist())
    for subject, (part, column, cls, apply) in _PARTS.items():
        if subject.value not in subjects:
            continue
        # Filtering copies rows, and a row has two states of a partition: only what is read of it.
        own = rows.select([name for name in rows.column_names if name in {"version", column, *cls._fields}])
        fresh = own.filter(pc.equal(rows["subject"], subject.value)) if len(subjects) > 1 else own
        apply(holder, fresh if as_of is None else _after(fresh, getattr(as_of, part)))


def _after(rows: pa.Table, version: int) -> pa.Table:
    is_after = pc.greater(rows["version"], version)
    return rows if pc.all(is_after).as_py() else rows.filter(is_after)


def _clusters(rows: pa.Table, clusters: Iterable[ClusterState | None]) -> Iterable[tuple[ClusterState, Configs]]:
    columns = rows.select(list(CONFIG_COLUMNS)).to_pylist()
    for cluster, configs in zip(clusters, columns, strict=True):
        if cluster is not None:
            yield cluster, tuple(configs_of(cluster.cluster_id, configs))


def _apply_clusters(holder: StateHolder, rows: pa.Table) -> None:
    columns = {name: pc.struct_field(rows["cluster_after"], name) for name in CONFIG_COLUMNS}
    for cluster, configured in _clusters(pa.table(columns), structs_of(ClusterState, rows, "cluster_after")):
        holder.put_cluster(cluster, configured)


def _apply_brokers(holder: StateHolder, rows: pa.Table) -> None:
    for broker in structs_of(BrokerState, rows, "broker_after"):
        if broker is not None:
            holder.put_broker(broker)


def _apply_partitions(holder: StateHolder, rows: pa.Table) -> None:
    for partition in structs_of(PartitionState, _newest_of_each(rows), "after"):
        if partition is not None:
            holder.put_partition(partition)


def _newest_of_each(rows: pa.Table) -> pa.Table:
    """Leave out the states of partitions that later rows replace: in a storm each partition changes again and again."""
    if rows.num_rows < _WORTH_CHOOSING:
        return rows
    newest = last_of_each(rows, list(PARTITION_STATE_TABLE.key))["row"]
    return rows if len(newest) == rows.num_rows else rows.take(newest.take(pc.sort_indices(newest)))


def _apply_sources(holder: StateHolder, rows: pa.Table) -> None:
    for source in structs_of(SourceState, rows, "source_after"):
        if source is not None:
            holder.put_source(source)


# The part of ``AsOf``, the column with the state after a change, and the class of that state.
_PARTS: Final[Mapping[Subject, tuple[str, str, Any, Any]]] = {
    Subject.CLUSTER: ("clusters", "cluster_after", ClusterState, _apply_clusters),
    Subject.BROKER: ("brokers", "broker_after", BrokerState, _apply_brokers),
    Subject.PARTITION: ("partitions", "after", PartitionState, _apply_partitions),
    Subject.SOURCE: ("sources", "source_after", SourceState, _apply_sources),
}


def count_isr_removals(holder: TotalsHolder, rows: pa.Table, as_of: AsOf) -> None:
    """Count the brokers that left an ISR in changes that the holder has not counted yet."""
    fresh = _after(rows.select(["version", "cluster_id", "cluster", "left_isr", "cause"]), as_of.brokers)
    removed = fresh.filter(pc.greater(pc.fill_null(pc.list_value_length(fresh["left_isr"]), 0), 0))
    columns = (removed[name].to_pylist() for name in ("cluster_id", "cluster", "left_isr", "cause"))
    for cluster_id, cluster, brokers, cause in zip(*columns, strict=True):
        for broker in brokers:
            holder.add_isr_removals(cluster_id, cluster, broker, cause or Cause.UNKNOWN.value, 1)
