"""The derived tables of some clusters at one version of the change log, computed where their state is.

A shard computes them on an executor and writes what grows with its clusters as files; the driver, the only writer of
the tables, commits the files of all shards together. A cluster has files of its own in ``partition_state``, in a
folder, so what other clusters have stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.state import ReplicationState
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Channel
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    REPLICATION_EVENTS,
)
from streaming.delta.changes.events import events_of
from streaming.delta.changes.history import expire_days
from streaming.delta.changes.reader import rows_between
from streaming.delta.log.cluster_files import (
    Adds,
    files_by_cluster,
    give_each_its_files,
    of_clusters,
    read_files,
    write_cluster,
)
from streaming.delta.log.commit import written
from streaming.delta.log.definitions import arrow_schema, file_layout, rows_to_arrow
from streaming.delta.log.maintenance import KEEP_ALL, AppendMaintenance, Maintenance, RetentionPolicy
from streaming.delta.log.queries import select, where_in
from streaming.delta.log.writer import OVERWRITE, Writer
from streaming.delta.progress import ProgressTable
from streaming.delta.projections.projections import (
    broker_rows,
    cluster_rows,
    newest_partitions,
    states_after,
    without_tombstones,
)
from streaming.delta.projections.shared_state import RecoveredState, SharedState
from streaming.delta.state import apply_changes, as_of_version, isr_removals, load_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.columns import Table
    from streaming.contracts.identifiers import Micros
    from streaming.contracts.state import SourceState
    from streaming.delta.projections.shared_state import IsrRemovals
    from streaming.delta.store.place import Place

_PARTITIONS: Final = PARTITION_STATE_TABLE
_ROWS: Final = (CLUSTER_STATE_TABLE, BROKER_STATE_TABLE)
_NEVER: Final = -1


@dataclass(frozen=True, slots=True)
class ClustersState:
    """The state of some clusters at a version.

    Attributes:
        shared: the state.
        removals: how often their brokers were removed from ISRs.
        dropped: up to when tombstones are not in ``partition_state``, by cluster; those that this process has written.
    """

    shared: SharedState
    removals: IsrRemovals
    dropped: dict[ClusterId, Micros | None] = field(default_factory=dict)

    def count_removals(self, changes: pa.Table) -> None:
        """Count the removals in rows of the change log that follow this state."""
        for (cluster_id, broker, cause), count in isr_removals(changes).items():
            self.removals[cluster_id, broker, cause] += count


def recovered(directory: Place, version: int, clusters: Collection[ClusterId]) -> ClustersState:
    """Rebuild the state of some clusters at a version of the change log.

    Raises:
        ChangesRestarted: the change log does not reach that version.
    """
    state = RecoveredState()
    as_of = load_state(directory, state, where_in(clusters))
    changes = rows_between(directory / PARTITION_CHANGES.name, as_of.oldest(), version, clusters)
    state.follow(changes, as_of)
    return ClustersState(state.shared(version), state.isr_removals)


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


class DerivedUpto(NamedTuple):
    """The versions of the change log up to which the tables are written whose rows only changes have."""

    events: int
    partitions: int


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


def derived(
    directory: Place,
    state: ClustersState,
    clusters: Collection[ClusterId],
    upto: DerivedUpto,
    files: Mapping[ClusterId, Sequence[str]],
) -> Derived:
    """Compute the derived tables of clusters as of the version of their state, and write the files.

    Args:
        directory: of the tables.
        state: of these clusters, and perhaps others.
        clusters: ids of the clusters to compute.
        upto: what the tables have already.
        files: the files that each cluster has in ``partition_state``.
    """
    version = state.shared.version
    changes = rows_between(directory / PARTITION_CHANGES.name, min(upto), version, clusters)
    new_events = events_of(changes.filter(pc.greater(changes["version"], upto.events)))
    after = states_after(changes.filter(pc.greater(changes["version"], upto.partitions)), version)
    replication, tally = state.shared.state, state.shared.tally
    return Derived(
        clusters=frozenset(clusters),
        events=list(written(directory / REPLICATION_EVENTS.name, new_events, file_layout(REPLICATION_EVENTS))),
        partitions=dict(_partitions(directory, state, clusters, after, files)),
        brokers=_of(broker_rows(replication, tally, state.removals, version), clusters),
        own=_of(cluster_rows(replication, tally, version), clusters),
    )


def _of(rows: list[dict[str, Any]], clusters: Collection[ClusterId]) -> list[dict[str, Any]]:
    return [row for row in rows if row["cluster_id"] in clusters]


def _partitions(
    directory: Place,
    state: ClustersState,
    clusters: Collection[ClusterId],
    after: pa.Table,
    files: Mapping[ClusterId, Sequence[str]],
) -> Iterator[tuple[ClusterId, Adds]]:
    """Yield the new files of each cluster whose partitions changed, or whose tombstones expired."""
    for cluster_id, cluster in state.shared.state.clusters.items():
        if cluster_id not in clusters:
            continue
        changed = of_clusters(after, (cluster_id,))
        if not changed.num_rows and state.dropped.get(cluster_id, _NEVER) == cluster.tombstones_until:
            continue
        before = read_files(directory / _PARTITIONS.name, _PARTITIONS, files.get(cluster_id, ()))
        rows = without_tombstones(newest_partitions(before, changed, state.shared.version), [cluster])
        state.dropped[cluster_id] = cluster.tombstones_until
        if changed.num_rows or rows.num_rows < before.num_rows:
            yield cluster_id, write_cluster(directory, _PARTITIONS, cluster_id, rows)


# The driver commits what the shards have computed.


class DerivedTables:
    """The only writer of every derived table, where shards compute them."""

    def __init__(self, directory: Place, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open the tables, or create them; each cluster gets files of its own.

        Raises:
            TableRefused: one is not ours, or newer than this program.
        """
        tables = (REPLICATION_EVENTS, *_ROWS, _PARTITIONS)
        self._writers = {table.name: Writer.opened(directory, table) for table in tables}
        ProgressTable(directory, Channel.REPLICATION)  # created here: a start reads it before anything is reported
        self._maintenance = {table.name: Maintenance(self._writers[table.name], policy) for table in tables[1:]}
        events = self._writers[REPLICATION_EVENTS.name]
        self._maintenance[REPLICATION_EVENTS.name] = AppendMaintenance(events, expire_days, policy)
        give_each_its_files(directory, self._writers[_PARTITIONS.name], _PARTITIONS)

    def check_ours(self) -> None:
        """Check that no other writer has claimed the tables.

        Raises:
            TableRefused: another one has.
        """
        for writer in self._writers.values():
            writer.check_ours()

    @property
    def version(self) -> int:
        """The version of the change log up to which all of them are computed."""
        return min(as_of_version(writer) for writer in self._writers.values())

    @property
    def upto(self) -> DerivedUpto:
        """The versions up to which those are written whose rows only changes have."""
        return DerivedUpto(*(as_of_version(self._writers[table.name]) for table in (REPLICATION_EVENTS, _PARTITIONS)))

    def files(self) -> dict[ClusterId, list[str]]:
        """Return the files of each cluster in ``partition_state``."""
        return files_by_cluster(self._writers[_PARTITIONS.name])

    def commit(self, pieces: Sequence[Derived], version: int) -> None:
        """Commit what was computed of all clusters with changes since ``version`` of the tables.

        Args:
            pieces: of disjoint clusters.
            version: of the change log, up to which they are computed.

        Raises:
            TableRefused: another writer came first.
        """
        files = self.files()
        replaced = {cluster_id: adds for piece in pieces for cluster_id, adds in piece.partitions.items()}
        gone = [name for cluster_id in replaced for name in files.get(cluster_id, ())]
        self._add(REPLICATION_EVENTS, [add for piece in pieces for add in piece.events], (), version)
        for table in _ROWS:
            before = select(self._writers[table.name].table, table)
            rows = merged_rows(table, before, pieces)
            self._commit(table, partial(self._writers[table.name].write, rows, OVERWRITE), version)
        self._add(_PARTITIONS, [add for adds in replaced.values() for add in adds], gone, version)

    def _add(self, table: Table, added: Adds, gone: Sequence[str], version: int) -> None:
        self._commit(table, partial(self._writers[table.name].add_files, added, gone), version)

    def _commit(self, table: Table, write: Callable[[dict[str, int]], object], version: int) -> None:
        if as_of_version(self._writers[table.name]) < version:
            write({PARTITION_CHANGES.name: version})
            self._maintenance[table.name].after_commit()


def merged_rows(table: Table, before: pa.Table, pieces: Iterable[Derived]) -> pa.Table:
    """Return the rows of ``broker_state`` or ``cluster_state``: those of the clusters that were computed are replaced.

    Args:
        table: which of them.
        before: its rows.
        pieces: what shards have computed.
    """
    schema = arrow_schema(table)
    parts, computed = [], set[ClusterId]()
    for piece in pieces:
        rows = piece.brokers if table is BROKER_STATE_TABLE else piece.own
        parts.append(rows_to_arrow([dict(row) for row in rows], schema))
        computed |= piece.clusters
    is_computed = pc.is_in(before["cluster_id"], pa.array(sorted(computed), pa.string()))
    return pa.concat_tables([before.filter(pc.invert(is_computed)), *parts])
