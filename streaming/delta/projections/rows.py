"""Rows of the tables derived from the change log: partition, broker and cluster state. Pure functions of a state.

What grows with the cluster is processed by Arrow, which releases Python's interpreter lock meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.advice.restart_safety import restart_advice
from streaming.contracts.columns import BROKER_ADVICE, BROKER_COUNTS, CLUSTER_COUNTS, CLUSTER_TOTALS
from streaming.contracts.events import Subject
from streaming.contracts.health import known_by_minimum
from streaming.contracts.state import PARTITION_STATE
from streaming.contracts.tables import AS_OF, PARTITION_STATE_TABLE
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.queries import last_of_each, numbered
from streaming.delta.state import config_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.changes.advice.suspects import SuspectTally
    from streaming.changes.state import BrokerKey, ReplicationState
    from streaming.contracts.state import ClusterState
    from streaming.delta.projections.clusters_state import IsrRemovals

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
