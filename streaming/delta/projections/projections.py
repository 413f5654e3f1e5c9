"""The tables derived from the change log: events, partition, broker and cluster state. Written after the change log.

Each table stores, in the commit that writes it, the version of ``partition_changes`` it is computed up to. So after a
crash between two of them the next round writes what is missing, and a start rebuilds the state from these tables and
the changes after them. One thread writes all of them, parallel to the thread of the batches.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.advice.restart_safety import restart_advice
from streaming.contracts.columns import BROKER_ADVICE, BROKER_COUNTS, CLUSTER_COUNTS, CLUSTER_TOTALS, Table
from streaming.contracts.events import Subject
from streaming.contracts.health import known_by_minimum
from streaming.contracts.observations import Channel
from streaming.contracts.state import PARTITION_STATE
from streaming.contracts.tables import (
    AS_OF,
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    REPLICATION_EVENTS,
)
from streaming.delta.changes.events import events_of
from streaming.delta.changes.history import expire_days
from streaming.delta.changes.reader import SECONDS_BETWEEN_HEARTBEATS, ChangesRestarted, rows_between
from streaming.delta.log.definitions import arrow_schema, rows_to_arrow
from streaming.delta.log.maintenance import KEEP_ALL, AppendMaintenance, Maintenance, RetentionPolicy
from streaming.delta.log.queries import last_of_each, numbered, select
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.log.writer import APPEND, OVERWRITE, Writer
from streaming.delta.progress import ProgressTable
from streaming.delta.projections.shared_state import RecoveredState, SharedState
from streaming.delta.state import StateVersions, as_of_version, config_columns, count_isr_removals, load_state
from streaming.errors import TableRefused
from streaming.runtime.memory import never_collected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streaming.changes.advice.suspects import SuspectTally
    from streaming.changes.state import BrokerKey, ReplicationState
    from streaming.contracts.identifiers import ClusterId, Micros
    from streaming.contracts.state import ClusterState
    from streaming.delta.projections.shared_state import IsrRemovals
    from streaming.delta.store.place import Place

_SOURCE_VERSION: Final = PARTITION_CHANGES.name
SECONDS_WHILE_DEGRADED: Final = 5.0
_DEGRADED: Final = ("under_replicated_partitions", "under_min_isr_partitions", "offline_partitions")
# Two writers of a table derived from one change log write the same rows, so the loser of a race checks again.
TRIES: Final = 5
_STATES: Final = (PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE)


class Projections:
    """The only writer of every table that is derived from the change log."""

    def __init__(self, directory: Place, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open the tables, or create them.

        Raises:
            TableRefused: one is not ours, or newer than this program.
        """
        self._directory = directory
        self._path = directory / PARTITION_CHANGES.name
        self._writers = {table.name: Writer.opened(directory, table) for table in (REPLICATION_EVENTS, *_STATES)}
        ProgressTable(directory, Channel.REPLICATION)  # created here: a start reads it before anything is reported
        self._maintenance = {table.name: Maintenance(self._writers[table.name], policy) for table in _STATES}
        name = REPLICATION_EVENTS.name
        self._maintenance[name] = AppendMaintenance(self._writers[name], expire_days, policy)
        self._removals_version = BEFORE_FIRST
        self._is_degraded = False
        self._dropped: dict[ClusterId, Micros | None] | None = None  # up to when tombstones are not in the table
        self._projected, self._projected_at = BEFORE_FIRST, -math.inf
        self._recovered = RecoveredState()
        self._last_read = BEFORE_FIRST, BEFORE_FIRST, pa.table({})

    def recover(self, version: int) -> SharedState:
        """Rebuild the state at a version of the change log: the state tables, then the changes after them.

        Raises:
            TableRefused: the state tables are of a later version than the change log has.
        """
        with never_collected():
            as_of = load_state(self._directory, self._recovered)
            # Each of them alone: of an older change log, the table that is ahead would not be written for long.
            newest = max(*as_of, *(as_of_version(writer) for writer in self._writers.values()))
            try:
                changes = rows_between(self._path, as_of.oldest(), version)
            except ChangesRestarted as error:
                raise self._ahead(newest, error) from error
            if newest > version:
                raise self._ahead(newest, f"its newest one is {version}")
            self._removals_version = version
            self._recovered.follow(changes, as_of)
            return self._recovered.shared(version)

    def _ahead(self, version: int, why: object) -> TableRefused:
        return TableRefused(
            f"the state tables were computed up to version {version} of {self._path}, which is older ({why}); "
            "bring back the whole folder of the tables from one copy, or point tables.directory and job.checkpoint at "
            "new folders"
        )

    def is_due(self, shared: SharedState) -> bool:
        """Return whether the tables are to be written: after steps at once, after mere heartbeats once in a while.

        While partitions are degraded, that is more often, because the seconds of their clusters grow.
        """
        pause = SECONDS_WHILE_DEGRADED if self._is_degraded else SECONDS_BETWEEN_HEARTBEATS
        is_long_ago = time.monotonic() - self._projected_at >= pause
        return shared.stepped > self._projected or (is_long_ago and shared.version > self._projected)

    def project(self, shared: SharedState) -> bool:
        """Write every table that lags behind the state; return whether there was anything to do."""
        state, tally, version = shared.copied()
        makers: dict[str, Callable[[], None]] = {
            REPLICATION_EVENTS.name: lambda: self._append_events(version),
            CLUSTER_STATE_TABLE.name: partial(
                self._overwrite, CLUSTER_STATE_TABLE, lambda: self._cluster_rows(state, tally, version), version
            ),
            BROKER_STATE_TABLE.name: partial(
                self._overwrite, BROKER_STATE_TABLE, lambda: self._broker_rows(state, tally, version), version
            ),
            PARTITION_STATE_TABLE.name: lambda: self._write_partitions(state, version),
        }
        written = [self._brought_to(version, self._writers[name], write) for name, write in makers.items()]
        self._projected, self._projected_at = version, time.monotonic()
        return any(written)

    def _brought_to(self, version: int, writer: Writer, write: Callable[[], None]) -> bool:
        """Write a table that lags behind; return whether it did. No writer ever moves a table to an older version."""
        for _ in range(TRIES):
            if as_of_version(writer) >= version:
                return False
            try:
                write()
            except TableRefused:
                writer.look_again()
            else:
                return True
        raise TableRefused(f"{writer.path} is written by another job again and again; stop one of the two")

    def _changes(self, after: int, upto: int) -> pa.Table:
        """Read changes; the tables of one round mostly ask for the same ones."""
        if self._last_read[:2] != (after, upto):
            self._last_read = after, upto, rows_between(self._path, after, upto)
        return self._last_read[2]

    def _cluster_rows(self, state: ReplicationState, tally: SuspectTally, version: int) -> list[dict[str, object]]:
        rows = cluster_rows(state, tally, version)
        self._is_degraded = any(row[name] for row in rows for name in _DEGRADED)
        return rows

    def _broker_rows(self, state: ReplicationState, tally: SuspectTally, version: int) -> list[dict[str, object]]:
        changes = self._changes(self._removals_version, version)
        count_isr_removals(self._recovered, changes, StateVersions(brokers=self._removals_version))
        self._removals_version = version
        return broker_rows(state, tally, self._recovered.isr_removals, version)

    def _append_events(self, version: int) -> None:
        name = REPLICATION_EVENTS.name
        changes = self._changes(as_of_version(self._writers[name]), version)
        self._writers[name].write(events_of(changes), APPEND, {_SOURCE_VERSION: version})
        self._maintenance[name].after_commit()

    def _write_partitions(self, state: ReplicationState, version: int) -> None:
        """Replace the rows of changed partitions and drop expired tombstones; without changes move the version only."""
        name = PARTITION_STATE_TABLE.name
        writer = self._writers[name]
        after = states_after(self._changes(as_of_version(writer), version), version)
        dropped = {cluster.cluster_id: cluster.tombstones_until for cluster in state.clusters.values()}
        if after.num_rows or self._dropped not in (None, dropped):
            before = select(writer.table, PARTITION_STATE_TABLE)
            rows = without_tombstones(newest_partitions(before, after, version), state.clusters.values())
            writer.write(rows, OVERWRITE, {_SOURCE_VERSION: version})
        else:
            writer.write(after, APPEND, {_SOURCE_VERSION: version})
        self._dropped = dropped
        self._maintenance[name].after_commit()

    def _overwrite(self, table: Table, make: Callable[[], list[dict[str, object]]], version: int) -> None:
        data = rows_to_arrow(make(), arrow_schema(table))
        self._writers[table.name].write(data, OVERWRITE, {_SOURCE_VERSION: version})
        self._maintenance[table.name].after_commit()


# Rows of ``partition_state``, computed in Arrow: the newest ``after`` of each key replaces the row of the table.
#
# What grows with the cluster is processed by Arrow, which releases Python's interpreter lock meanwhile.


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
    """Replace rows by the newest row of their key.

    Args:
        before: one row per key.
        after: later rows, the newest of a key last.
        version: the version of ``partition_changes`` up to which all rows are computed then.
    """
    last = last_of_each(after, _KEY)
    kept = numbered(before, _KEY).join(last.select(_KEY), keys=_KEY, join_type="left anti")["row"]
    rows = pa.concat_tables([before.take(kept), after.take(last["row"])])
    place = rows.schema.get_field_index(_AS_OF)
    return rows.set_column(place, _SCHEMA.field(_AS_OF), pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows))


def without_tombstones(rows: pa.Table, clusters: Iterable[ClusterState]) -> pa.Table:
    """Leave out the tombstones that their clusters have dropped (``ClusterState.has_expired``)."""
    for cluster in clusters:
        if cluster.tombstones_until is not None:
            until = pa.scalar(cluster.tombstones_until, pa.timestamp("us", tz="UTC"))
            gone = pc.and_(rows["is_deleted"], pc.less_equal(rows["changed_at"], until))
            gone = pc.and_(gone, pc.equal(rows["cluster_id"], cluster.cluster_id))
            rows = rows.filter(pc.invert(pc.fill_null(gone, fill_value=False)))
    return rows


# State as rows of ``broker_state`` and ``cluster_state``.


# A cluster that was never reported completely has no advice: what is not known of could be what goes offline.
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
