"""State as rows of ``broker_state`` and ``cluster_state``."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from streaming.changes.advice.restart_safety import restart_advice
from streaming.contracts.columns import BROKER_ADVICE, BROKER_COUNTS, CLUSTER_COUNTS, CLUSTER_TOTALS
from streaming.contracts.health import known_by_minimum
from streaming.delta.state_rows import config_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.changes.advice.suspects import SuspectTally
    from streaming.changes.state import BrokerKey, ReplicationState
    from streaming.contracts.state import ClusterState
    from streaming.delta.shared_state import IsrRemovals

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
    return {
        **counts,
        "would_go_under_min_isr": known_by_minimum(counts["would_go_under_min_isr"], hosted, unknown),
    }


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
