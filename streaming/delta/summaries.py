"""State as rows of ``broker_state`` and ``cluster_state``."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from streaming.changes.headroom import is_safe_to_stop, restart_order
from streaming.contracts.columns import BROKER_COUNTS, CLUSTER_COUNTS, CLUSTER_TOTALS
from streaming.contracts.health import known_by_minimum
from streaming.delta.rows import min_isr_rows, state_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.changes.state import BrokerKey, ClusterState, ReplicationState
    from streaming.changes.tally import Tally

Departures = Counter[tuple[str, int, str]]


def count_departures(departures: Departures, changes: Iterable[Mapping[str, Any]]) -> None:
    """Count who left an ISR, and why, from rows of ``partition_changes``."""
    for change in changes:
        for broker in change["left_isr"] or ():
            departures[change["cluster_id"], broker, change["cause"]] += 1


def broker_rows(state: ReplicationState, tally: Tally, departures: Departures, version: int) -> list[dict[str, Any]]:
    """Write every broker, with its counts, and whether and when it may be restarted."""
    left: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for (cluster_id, broker, cause), count in sorted(departures.items()):
        left[cluster_id, broker].append({"cause": cause, "departures": count})
    advice = _advice(state, tally)
    return [
        {
            "cluster_id": broker.cluster_id,
            "cluster": broker.cluster,
            "broker": broker.broker,
            **(state_row(broker) or {}),
            **{column.name: tally.of_broker(*key, column.name) for column in BROKER_COUNTS},
            **advice.get(key, {}),  # none while the cluster was never seen whole
            "isr_departures": left[key],
            "as_of_version": version,
        }
        for key, broker in state.brokers.items()
    ]


def _advice(state: ReplicationState, tally: Tally) -> dict[BrokerKey, dict[str, Any]]:
    advice: dict[BrokerKey, dict[str, Any]] = {}
    for cluster in state.clusters.values():
        brokers = [broker for broker in state.brokers.values() if broker.cluster_id == cluster.cluster_id]
        order = {broker: place for place, broker in enumerate(restart_order(brokers, cluster, tally), start=1)}
        for broker in brokers:
            advice[broker.cluster_id, broker.broker] = {
                "is_safe_to_stop": is_safe_to_stop(broker, cluster, tally),
                "restart_order": order.get(broker.broker),
                "suspect_score": tally.suspect_score(broker.cluster_id, broker.broker),
            }
    return advice


def cluster_rows(state: ReplicationState, tally: Tally, version: int) -> list[dict[str, Any]]:
    """Write every cluster, with its counts and totals."""
    return [_cluster_row(cluster, state, tally, version) for cluster in state.clusters.values()]


def _cluster_row(cluster: ClusterState, state: ReplicationState, tally: Tally, version: int) -> dict[str, Any]:
    cluster_id, watermark = cluster.cluster_id, cluster.authority_watermark
    known = [item for item in sorted(state.min_isr.items()) if item[0].cluster_id == cluster_id]
    counts = {column.name: tally.of_cluster(cluster_id, column.name) for column in CLUSTER_COUNTS}
    return {
        "cluster_id": cluster_id,
        "cluster": cluster.cluster,
        **(state_row(cluster) or {}),
        "topic_min_isr": min_isr_rows(known),
        **counts,
        **{name: _by_minimum(name, counts) for name in ("under_min_isr_partitions", "at_min_isr_partitions")},
        **{
            column.name: tally.total(cluster_id, column.name, watermark) + getattr(cluster, f"expired_{column.name}")
            for column in CLUSTER_TOTALS
        },
        "as_of_version": version,
    }


def _by_minimum(name: str, counts: Mapping[str, int]) -> int | None:
    return known_by_minimum(counts[name], counts["partitions"], counts["unknown_min_isr_partitions"])
