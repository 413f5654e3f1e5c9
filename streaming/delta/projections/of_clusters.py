"""The state of some clusters at one version of the change log, and their rows in the derived tables.

Computed where the state is. What grows with the clusters is written as files there; the driver, the only writer of the
tables, commits the files of all shards together (``projections.tables``). A cluster has files of its own in
``partition_state``, in a folder, so what other clusters have stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.state import ReplicationState
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Channel
from streaming.contracts.tables import PARTITION_CHANGES, PARTITION_STATE_TABLE, REPLICATION_EVENTS
from streaming.delta.changes.events import events_of
from streaming.delta.changes.reader import rows_between
from streaming.delta.log.cluster_files import Adds, of_clusters, read_files, write_cluster
from streaming.delta.log.commit import written
from streaming.delta.log.definitions import file_layout
from streaming.delta.log.queries import ALL, where_in
from streaming.delta.progress import ProgressTable
from streaming.delta.projections.clusters_state import ClustersState, RecoveredState
from streaming.delta.projections.rows import broker_rows, cluster_rows, newest_partitions, states_after
from streaming.delta.state import apply_changes, is_dropped, load_state

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from streaming.contracts.state import SourceState
    from streaming.delta.store.place import Place

_PARTITIONS: Final = PARTITION_STATE_TABLE


def recovered(directory: Place, version: int, clusters: Collection[ClusterId] | None = None) -> ClustersState:
    """Rebuild the state of some clusters, or of all, at a version: the state tables, then the changes after them.

    Raises:
        ChangesRestarted: the change log does not reach that version.
    """
    state = RecoveredState()
    as_of = load_state(directory, state, ALL if clusters is None else where_in(clusters))
    changes = rows_between(directory / PARTITION_CHANGES.name, as_of.oldest(), version, clusters)
    state.follow(changes, as_of)
    return state.at(version)


def recovered_sources(directory: Place, version: int) -> list[SourceState]:
    """Read how far every source was applied at a version of the change log.

    Raises:
        ChangesRestarted: the change log does not reach that version.
    """
    progress, state = ProgressTable(directory, Channel.REPLICATION), ReplicationState()
    for source in progress.sources():
        state.put_source(source)
    changes = rows_between(directory / PARTITION_CHANGES.name, progress.as_of_version, version)
    apply_changes(state, changes.filter(pc.equal(changes["subject"], Subject.SOURCE)))
    return list(state.sources.values())


class DerivedBefore(NamedTuple):
    """State of the derived tables before a round.

    Attributes:
        events: the version of the change log up to which ``replication_events`` is written.
        partitions: the same for ``partition_state``.
        files: of each cluster in ``partition_state``.
    """

    events: int
    partitions: int
    files: Mapping[ClusterId, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Content of the derived tables for some clusters.

    Attributes:
        clusters: all of them.
        events: files that are added to ``replication_events``.
        partitions: by cluster, the files that replace all that it has in ``partition_state``.
        brokers: rows of ``broker_state``.
        own: rows of ``cluster_state``.
    """

    clusters: frozenset[ClusterId]
    events: Adds = field(default_factory=list)
    partitions: Mapping[ClusterId, Adds] = field(default_factory=dict)
    brokers: Sequence[Mapping[str, Any]] = ()
    own: Sequence[Mapping[str, Any]] = ()


def derived(directory: Place, held: ClustersState, clusters: Collection[ClusterId], before: DerivedBefore) -> Derived:
    """Compute the derived tables of clusters as of the version of their state, and write the files.

    Args:
        directory: of the tables.
        held: the state of these clusters, and perhaps others.
        clusters: ids of the clusters to compute.
        before: what the tables have already.
    """
    version = held.version
    changes = rows_between(directory / PARTITION_CHANGES.name, min(before.events, before.partitions), version, clusters)
    new_events = events_of(_later(changes, before.events))
    after = states_after(_later(changes, before.partitions), version)
    del changes
    replication, tally = _only(held.state, clusters), held.tally
    return Derived(
        clusters=frozenset(clusters),
        events=list(written(directory / REPLICATION_EVENTS.name, new_events, file_layout(REPLICATION_EVENTS))),
        partitions=dict(_partitions(directory, held, clusters, after, before.files)),
        brokers=broker_rows(replication, tally, held.removals, version),
        own=cluster_rows(replication, tally, version),
    )


def _later(changes: pa.Table, version: int) -> pa.Table:
    """Return the rows after a version; the same table if all are."""
    is_later = pc.greater(changes["version"], version)
    return changes if pc.all(is_later).as_py() else changes.filter(is_later)


def _only(state: ReplicationState, clusters: Collection[ClusterId]) -> ReplicationState:
    """Return the brokers, the own state and the configured values of clusters."""
    return ReplicationState(
        brokers={key: broker for key, broker in state.brokers.items() if broker.cluster_id in clusters},
        clusters={cluster_id: cluster for cluster_id, cluster in state.clusters.items() if cluster_id in clusters},
        configs={key: value for key, value in state.configs.items() if key.cluster_id in clusters},
    )


def _partitions(
    directory: Place,
    held: ClustersState,
    clusters: Collection[ClusterId],
    after: pa.Table,
    files: Mapping[ClusterId, Sequence[str]],
) -> Iterator[tuple[ClusterId, Adds]]:
    """Yield the new files of each cluster whose partitions changed, or whose tombstones expired."""
    for cluster_id, cluster in held.state.clusters.items():
        if cluster_id not in clusters:
            continue
        changed, names = of_clusters(after, (cluster_id,)), frozenset(files.get(cluster_id, ()))
        if not changed.num_rows and held.dropped.get(cluster_id) == (cluster.tombstones_until, names):
            continue
        before = read_files(directory / _PARTITIONS.name, _PARTITIONS, names)
        rows = newest_partitions(before, changed, held.version)
        rows = rows.filter(pc.invert(is_dropped(cluster, rows["cluster_id"], rows["is_deleted"], rows["changed_at"])))
        if changed.num_rows or rows.num_rows < before.num_rows:
            added = write_cluster(directory, _PARTITIONS, cluster_id, rows)
            names = frozenset(add["path"] for add in added)  # if they are committed; else the next round finds others
            yield cluster_id, added
        held.dropped[cluster_id] = cluster.tombstones_until, names
