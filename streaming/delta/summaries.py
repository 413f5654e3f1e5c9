"""State as rows of ``partition_state``, ``broker_state``, ``cluster_state`` and ``source_progress``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.observations import Channel
from streaming.delta.rows import min_isr_rows, state_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.changes.state import BrokerState, ClusterState, PartitionState, ReplicationState, SourceState

Departures = Counter[tuple[str, int, str]]
_TOTALS: Final = ("isr_shrinks", "isr_expands", "leader_changes", "unclean_elections", "missed_changes")


def count_departures(departures: Departures, changes: Iterable[Mapping[str, Any]]) -> None:
    """Count who left an ISR, and why, from rows of ``partition_changes``."""
    for change in changes:
        for broker in change["left_isr"] or ():
            departures[change["cluster_id"], broker, change["cause"]] += 1


def partition_rows(state: ReplicationState, version: int) -> list[dict[str, Any]]:
    """Write every partition, tombstones included."""
    return [_partition_row(partition, version) for partition in state.partitions()]


def _partition_row(partition: PartitionState, version: int) -> dict[str, Any]:
    identity = {name: getattr(partition, name) for name in ("cluster_id", "cluster", "topic_id", "topic", "partition")}
    return {**identity, **(state_row(partition) or {}), "as_of_version": version}


def broker_rows(state: ReplicationState, departures: Departures, version: int) -> list[dict[str, Any]]:
    """Write every broker, with what it leads, hosts and has in sync."""
    counts = _counts(state)
    return [_broker_row(broker, counts, departures, version) for broker in state.brokers.values()]


def _counts(state: ReplicationState) -> Counter[tuple[str, str, int]]:
    counts: Counter[tuple[str, str, int]] = Counter()
    for partition in state.partitions():
        if partition.is_deleted:
            continue
        counts["led", partition.cluster_id, partition.leader] += 1
        counts.update(("hosted", partition.cluster_id, broker) for broker in partition.replicas)
        counts.update(("in_sync", partition.cluster_id, broker) for broker in partition.isr)
    return counts


def _broker_row(
    broker: BrokerState, counts: Counter[tuple[str, str, int]], departures: Departures, version: int
) -> dict[str, Any]:
    cluster_id, number = broker.cluster_id, broker.broker
    left = [
        {"cause": cause, "departures": count}
        for (cluster, who, cause), count in sorted(departures.items())
        if (cluster, who) == (cluster_id, number)
    ]
    return {
        "cluster_id": cluster_id,
        "cluster": broker.cluster,
        "broker": number,
        **(state_row(broker) or {}),
        "led_partitions": counts["led", cluster_id, number],
        "hosted_partitions": counts["hosted", cluster_id, number],
        "in_sync_partitions": counts["in_sync", cluster_id, number],
        "isr_departures": left,
        "as_of_version": version,
    }


def cluster_rows(state: ReplicationState, version: int) -> list[dict[str, Any]]:
    """Write every cluster; its totals include what deleted topics counted."""
    totals: Counter[tuple[str, str]] = Counter()
    for partition in state.partitions():
        totals.update({(partition.cluster_id, name): getattr(partition, name) for name in _TOTALS})
    return [_cluster_row(cluster, state, totals, version) for cluster in state.clusters.values()]


def _cluster_row(
    cluster: ClusterState, state: ReplicationState, totals: Counter[tuple[str, str]], version: int
) -> dict[str, Any]:
    known = [item for item in sorted(state.min_isr.items()) if item[0].cluster_id == cluster.cluster_id]
    return {
        "cluster_id": cluster.cluster_id,
        "cluster": cluster.cluster,
        **(state_row(cluster) or {}),
        "topic_min_isr": min_isr_rows(known),
        **{name: totals[cluster.cluster_id, name] for name in _TOTALS},
        "as_of_version": version,
    }


def source_rows(state: ReplicationState, version: int) -> list[dict[str, Any]]:
    """Write how far every source of the replication channel has been applied."""
    return [_source_row(source, version) for source in state.sources.values()]


def _source_row(source: SourceState, version: int) -> dict[str, Any]:
    return {
        "cluster_id": source.cluster_id,
        "cluster": source.cluster,
        "channel": Channel.REPLICATION,
        "source": source.source,
        "authority": source.authority,
        **(state_row(source) or {}),
        "as_of_version": version,
    }
