"""Cluster facts that incidents need besides the changes, as of a version, from the state tables.

After a kill each state table may be some versions behind the table of incidents or ahead of it. The changes in between
are applied, or taken back. For a broker or a cluster that has changed since, the newest row up to that version says
what it was.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.conditions.harm import Harmed
from streaming.changes.incidents.context import BASELINE, STATES_OF, ClusterContext, DegradedState
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.observations import SourceKind
from streaming.contracts.tables import BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, PARTITION_CHANGES, PARTITION_STATE_TABLE
from streaming.delta.changes.history import unread_upto
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.incidents.rows import in_states_of, in_sync_of, lacking_in, lacking_of, rows_of, states_of, tuples
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.queries import ALL, open_ours, plain, query, quoted, select, where_in
from streaming.delta.log.storage import open_table
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.state import as_of_version

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from deltalake import DeltaTable

    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place

_Subject = tuple[str, int | None]
"""Id of a cluster, and of a broker or None for the cluster itself."""
_TIMES: Final = ("replica_lag_time_max_ms", "broker_session_timeout_ms")
_TABLE_OF: Final = {
    Subject.CLUSTER: CLUSTER_STATE_TABLE,
    Subject.BROKER: BROKER_STATE_TABLE,
    Subject.PARTITION: PARTITION_STATE_TABLE,
}
_COLUMNS_OF: Final = {
    Subject.CLUSTER: (
        "cluster_id", "cluster", "controller", "primary_source", "sight_until", *_TIMES,
        "controller_silent_since", "controller_silent_until",
    ),
    Subject.BROKER: (
        "cluster_id", "broker", "rack", "is_registered", "is_fenced", "is_shutting_down", "maintenance_leases",
    ),
    Subject.PARTITION: (
        "cluster_id", "leader", "replicas", "isr", "adding_replicas", "removing_replicas", "min_isr_effective",
        "is_offline", "is_under_replicated", "is_under_min_isr", "is_at_min_isr", "is_deleted", "is_diskless",
        "changed_at",
    ),
}  # fmt: skip

_BEGIN_OF: Final = {
    DegradedState.OFFLINE: "offline_since",
    DegradedState.UNDER_MIN_ISR: "under_min_isr_since",
    DegradedState.MINIMUM_UNKNOWN: "under_replicated_since",
    DegradedState.AT_MIN_ISR: "under_replicated_since",
}
_BEGINS: Final = tuple(sorted(set(_BEGIN_OF.values())))


def read_contexts(directory: Place, version: int, clusters: Collection[str] | None = None) -> dict[str, ClusterContext]:
    """Read the context of all clusters, or some, by id, as of a version of the change log.

    A missing table adds nothing. If changes after the version have expired, the state tables are taken as they are.
    """
    contexts: defaultdict[str, ClusterContext] = defaultdict(ClusterContext)
    where = ALL if clusters is None else where_in(clusters)
    as_of: dict[str, int] = {subject: _read_state(directory, subject, contexts, where) for subject in _TABLE_OF}
    for cluster_id, context in contexts.items():
        context.cluster_id, context.version = cluster_id, version
    if unread_upto(directory) > version:
        return contexts
    changed_since = set[_Subject]()
    reader = ChangeReader(directory / PARTITION_CHANGES.name, min(version, *as_of.values()))
    for at, rows in reader.poll(max(version, *as_of.values())):
        for row in rows_of(rows, at):
            subject = Subject.PARTITION if row.subject == BASELINE else row.subject
            if (upto := as_of.get(subject)) is None or not (clusters is None or row.cluster_id in clusters):
                continue  # contexts do not contain sources
            if upto < at <= version:
                contexts[row.cluster_id].follow(row)
            elif version < at <= upto and subject == Subject.PARTITION:
                contexts[row.cluster_id].count(row, -1)
            elif version < at <= upto:
                changed_since.add((row.cluster_id, row.broker if subject == Subject.BROKER else None))
    for cluster_id, broker in changed_since:
        _go_back(directory, version, (cluster_id, broker), contexts[cluster_id])
    return contexts


def read_harmed(directory: Place) -> dict[str, list[Harmed]]:
    """Read the partitions that are not healthy, of each cluster by id: since when, as their states have it now."""
    harmed: dict[str, list[Harmed]] = {}
    if (table := open_table(directory / PARTITION_STATE_TABLE.name)) is None:
        return harmed
    where = f"NOT is_deleted AND ({' OR '.join(f'{name} IS NOT NULL' for name in _BEGINS)})"
    columns = ("topic_id", "partition", *_BEGINS, *_COLUMNS_OF[Subject.PARTITION])
    rows = _selected(table, PARTITION_STATE_TABLE, columns, where).combine_chunks()
    state = partial(_column, rows)
    begins = {name: state(name).cast(pa.int64()).to_pylist() for name in _BEGINS}
    keys = zip(state("topic_id").to_pylist(), state("partition").to_pylist(), strict=True)
    every = zip(
        state("cluster_id").to_pylist(), keys, tuples(lacking_in(state)), states_of(state).to_pylist(), strict=True
    )
    for place, (cluster_id, key, lacking, states) in enumerate(every):
        since = {each: begins[_BEGIN_OF[each]][place] for each in STATES_OF[states] if each in _BEGIN_OF}
        since = {each: at for each, at in since.items() if at is not None}
        lacking_since = begins["under_replicated_since"][place]
        harmed.setdefault(cluster_id, []).append(Harmed(key, lacking, since, lacking_since))
    return harmed


def _go_back(directory: Place, version: int, subject: _Subject, context: ClusterContext) -> None:
    """Set a broker or the cluster to its newest row up to a version."""
    cluster_id, broker = subject
    is_it = "subject = 'cluster'" if broker is None else f"subject = 'broker' AND broker = {broker}"
    name = cluster_id.replace("'", "''")
    where = f"{is_it} AND cluster_id = '{name}' AND version <= {version} ORDER BY version DESC, ordinal DESC LIMIT 1"
    newest = select(open_ours(directory, PARTITION_CHANGES), PARTITION_CHANGES, where)
    for row in rows_of(newest, version):
        context.follow(row)
    if not newest.num_rows:
        context.forget(broker)


def _read_state(directory: Place, subject: Subject, contexts: defaultdict[str, ClusterContext], where: str) -> int:
    """Read one state table into the contexts; return the version up to which it was computed."""
    definition = _TABLE_OF[subject]
    table = open_table(directory / definition.name)
    if table is None:
        return BEFORE_FIRST
    rows = _selected(table, definition, _COLUMNS_OF[subject], where)
    if subject is Subject.PARTITION:
        _count_partitions(rows, contexts)
    else:
        put = _put_cluster if subject is Subject.CLUSTER else _put_broker
        for row in plain(rows).to_pylist():
            put(row, contexts[row["cluster_id"]])
    return as_of_version(table)


def _selected(table: DeltaTable, definition: Table, columns: Iterable[str], where: str) -> pa.Table:
    """Read columns of a state table; those that its own query has not added yet are null."""
    schema = pa.schema([arrow_schema(definition).field(name) for name in columns])
    existing = {field.name for field in table.schema().fields}.intersection(schema.names)
    rows = query(table, f"SELECT {quoted(existing)} FROM rows WHERE {where}")  # noqa: S608 - our own columns
    return pa.concat_tables([schema.empty_table(), rows], promote_options="default")


def _put_cluster(row: dict[str, Any], context: ClusterContext) -> None:
    context.controller = NO_LEADER if row["controller"] is None else row["controller"]
    context.primary_source = row["primary_source"] or SourceKind.NONE
    context.name, context.blind_since = row["cluster"], row["sight_until"] or 0
    context.times = context.times.configured(*(row[name] for name in _TIMES))
    context.silent = row["controller_silent_since"] or 0, row["controller_silent_until"] or 0


def _put_broker(row: dict[str, Any], context: ClusterContext) -> None:
    context.racks[row["broker"]] = row["rack"] or ""
    is_up = bool(row["is_registered"] and not row["is_fenced"])
    context.set_up(row["broker"], is_up=is_up, is_shutting_down=bool(row["is_shutting_down"]))
    context.set_leases(row["broker"], row["maintenance_leases"])


def _count_partitions(rows: pa.Table, contexts: defaultdict[str, ClusterContext]) -> None:
    is_left_out = pc.or_(rows["is_deleted"], pc.fill_null(rows["is_diskless"], False))
    existing = rows.filter(pc.invert(is_left_out)).combine_chunks()
    state = partial(_column, existing)
    cluster_ids = state("cluster_id")
    for cluster_id, in_sync in in_sync_of(cluster_ids, state("leader"), state("isr")).items():
        contexts[cluster_id].add_in_sync(in_sync)
    newest = pa.table([cluster_ids, state("changed_at").cast(pa.int64())], ["id", "at"]).group_by("id")
    for row in newest.aggregate([("at", "max")]).to_pylist():
        contexts[row["id"]].now = row["at_max"] or 0
    lacking = lacking_of(cluster_ids, state)
    for cluster_id, in_states in in_states_of(cluster_ids, states_of(state)).items():
        contexts[cluster_id].add_degraded(in_states, lacking.get(cluster_id, ()))


def _column(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()
