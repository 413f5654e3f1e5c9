"""The state of some clusters at one version of the change log, and their rows in the derived tables.

Computed where the state is. What grows with the clusters is written as files there; the driver, the only writer of the
tables, commits the files of all shards together (``projections.tables``). A cluster has files of its own in
``partition_state``, in a folder, so what other clusters have stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.advice.restart_safety import restart_advice
from streaming.changes.state import ReplicationState
from streaming.contracts.columns import BROKER_ADVICE, BROKER_COUNTS, CLUSTER_COUNTS, CLUSTER_TOTALS
from streaming.contracts.events import Subject
from streaming.contracts.health import known_by_minimum
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Channel
from streaming.contracts.state import PARTITION_STATE
from streaming.contracts.tables import AS_OF, PARTITION_CHANGES, PARTITION_STATE_TABLE, REPLICATION_EVENTS
from streaming.delta.changes.reader import events_of, rows_between
from streaming.delta.log.cluster_files import Adds, of_clusters, read_files, write_cluster
from streaming.delta.log.commit import written
from streaming.delta.log.definitions import arrow_schema, file_layout
from streaming.delta.log.queries import ALL, last_of_each, numbered, where_in
from streaming.delta.progress import ProgressTable
from streaming.delta.projections.clusters_state import ClustersState, RecoveredState
from streaming.delta.state import apply_changes, config_columns, is_dropped, load_state

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from streaming.changes.advice.suspects import SuspectTally
    from streaming.changes.state import BrokerKey
    from streaming.contracts.state import ClusterState, SourceState
    from streaming.delta.projections.clusters_state import IsrRemovals
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
    """Compute the derived tables of clusters as of the version of their state, and write the files."""
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


# Rows of the tables. Pure functions of a state; what grows with the cluster is processed by Arrow.


# Rows of ``partition_state``: the newest ``after`` of each key replaces the row of the table.


_SCHEMA: Final = arrow_schema(PARTITION_STATE_TABLE)
_KEY: Final = list(PARTITION_STATE_TABLE.key)
_OF_STATE: Final = frozenset(column.name for column in PARTITION_STATE)
_AS_OF: Final = AS_OF[0].name


def states_after(changes: pa.Table, version: int) -> pa.Table:
    """Return the state that each change of a partition left behind, in order, as rows of ``partition_state``."""
    of_partitions = changes.filter(pc.equal(changes["subject"], Subject.PARTITION))
    columns = [_column(name, of_partitions, version) for name in _SCHEMA.names]
    return pa.Table.from_arrays(columns, names=_SCHEMA.names).cast(_SCHEMA)


def _column(name: str, changes: pa.Table, version: int) -> Any:  # noqa: ANN401 - pyarrow ships no types
    if name == _AS_OF:
        return pa.repeat(pa.scalar(version, pa.int64()), changes.num_rows)
    return pc.struct_field(changes["after"], name) if name in _OF_STATE else changes[name]


def newest_partitions(before: pa.Table, after: pa.Table, version: int) -> pa.Table:
    """Replace rows, one per key, by the newest later row of their key; then all are computed up to a version."""
    last = last_of_each(after, _KEY)
    kept = numbered(before, _KEY).join(last.select(_KEY), keys=_KEY, join_type="left anti")["row"]
    rows = pa.concat_tables([before.take(kept), after.take(last["row"])])
    place = rows.schema.get_field_index(_AS_OF)
    return rows.set_column(place, _SCHEMA.field(_AS_OF), pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows))


# State as rows of ``broker_state`` and ``cluster_state``.


# A cluster that was never reported completely has no advice: an unknown partition could go offline.
_NO_ADVICE = {column.name: None for column in BROKER_ADVICE}


def broker_rows(
    state: ReplicationState, tally: SuspectTally, removals: IsrRemovals, version: int
) -> list[dict[str, Any]]:
    """Write every broker, with its counts, and whether and when it may be restarted."""
    causes: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for (cluster_id, broker, cause), count in sorted(removals.items()):
        causes[cluster_id, broker].append({"cause": cause, "departures": count})
    advice = _advice(state, tally)
    return [
        {
            **broker._asdict(),
            **_broker_counts(tally, key),
            **advice.get(key, _NO_ADVICE),
            "isr_departures": causes[key],
            "as_of_version": version,
        }
        for key, broker in state.brokers.items()
    ]


def _broker_counts(tally: SuspectTally, key: BrokerKey) -> dict[str, int | None]:
    counts: dict[str, Any] = {column.name: tally.of_broker(*key, column.name) for column in BROKER_COUNTS}
    hosted, unknown = counts["hosted_partitions"], counts["unknown_min_isr_partitions"]
    return {**counts, "would_go_under_min_isr": known_by_minimum(counts["would_go_under_min_isr"], hosted, unknown)}


def _advice(state: ReplicationState, tally: SuspectTally) -> dict[BrokerKey, dict[str, Any]]:
    advice: dict[BrokerKey, dict[str, Any]] = {}
    for cluster in state.clusters.values():
        brokers = [broker for broker in state.brokers.values() if broker.cluster_id == cluster.cluster_id]
        scores = tally.suspect_scores(cluster.cluster_id, brokers)
        for broker, advised in restart_advice(brokers, cluster, tally).items():
            advice[cluster.cluster_id, broker] = {**advised._asdict(), "suspect_score": scores[broker]}
    return advice


def cluster_rows(state: ReplicationState, tally: SuspectTally, version: int) -> list[dict[str, Any]]:
    """Write every cluster, with its counts and totals."""
    return [_cluster_row(cluster, state, tally, version) for cluster in state.clusters.values()]


def _cluster_row(cluster: ClusterState, state: ReplicationState, tally: SuspectTally, version: int) -> dict[str, Any]:
    cluster_id = cluster.cluster_id
    configs = [item for item in sorted(state.configs.items()) if item[0].cluster_id == cluster_id]
    counts = {column.name: tally.of_cluster(cluster_id, column.name) for column in CLUSTER_COUNTS}
    return {
        **cluster._asdict(),
        **config_columns(configs),
        **counts,
        **{name: _by_minimum(name, counts) for name in ("under_min_isr_partitions", "at_min_isr_partitions")},
        **{
            column.name: tally.total(cluster_id, column.name, cluster.observed)
            + getattr(cluster, f"expired_{column.name}")
            for column in CLUSTER_TOTALS
        },
        "as_of_version": version,
    }


def _by_minimum(name: str, counts: Mapping[str, int]) -> int | None:
    return known_by_minimum(
        counts[name], counts["partitions"] - counts["diskless_partitions"], counts["unknown_min_isr_partitions"]
    )
