"""A cluster polled by its metadata alone, as an up-to-date broker would return them: no epoch, no order, no cause.

What other polling is measured by; and what stands in while a metadata log is silent.
"""

from __future__ import annotations

from typing import Any, Final

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.observations import (
    CLUSTER_TIMES,
    ConfigObserved,
    ConfigOrigin,
    Heartbeat,
    Observation,
    SnapshotReason,
    SourceKind,
)
from streaming.sources.polling.view import ClusterView, PartitionView, has_same_members, snapshot, steps
from streaming.sources.simulated.simulation import Simulation

NAME = "admin:judge"
_CLUSTER_ID: Final = ClusterId("judged")


class Poller:
    """Polls a simulated cluster; stands in for the admin source and its client."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._last: ClusterView | None = None
        self._polled_at = Micros(0)

    def poll(self, now: Micros) -> list[Observation]:
        """Give what differs from the previous poll; the whole state first, and when brokers or topics changed."""
        before, after = self._last, self._view()
        envelope: dict[str, Any] = {
            "cluster_id": after.cluster_id,
            "cluster": "judged",
            "source": NAME,
            "source_kind": SourceKind.POLL,
            "occurred_not_before": now if before is None else self._polled_at,
            "occurred_not_after": now,
            "collected_at": now,
        }
        self._last, self._polled_at = after, now
        if before is None or not has_same_members(before, after):
            reason = SnapshotReason.START if before is None else SnapshotReason.PERIODIC
            report = snapshot(before, after, envelope, snapshot_id=f"{NAME}/{now}", reason=reason)
            return [*report, *(configuration(self._simulation, now) if before is None else ())]
        return steps(before, after, envelope) or [Heartbeat(**envelope)]

    def _view(self) -> ClusterView:
        registry = self._simulation.cluster.controller.registry
        topics: dict[str, dict[int, PartitionView]] = {}
        ids: dict[str, TopicId] = {}
        for key, state in sorted(registry.partitions.items()):
            name = registry.topics[key.topic_id].topic
            ids[name] = key.topic_id
            in_order = tuple(broker for broker in state.replicas if broker in state.isr)
            topics.setdefault(name, {})[key.partition] = PartitionView(state.replicas, in_order, state.leader)
        listed = sorted(broker for broker, registration in registry.brokers.items() if not registration.fenced)
        return ClusterView(
            cluster_id=_CLUSTER_ID,
            answered_by=listed[0] if listed else -1,
            brokers={BrokerId(broker): ("broker", 9092) for broker in listed},
            topics=topics,
            topic_ids=ids,
            partition_counts={name: len(parts) for name, parts in topics.items()},
        )


def configuration(simulation: Simulation, now: Micros, *, has_times: bool = False) -> list[Observation]:
    """Give the minimum ISR of topics, and of brokers whose files have their own, as DescribeConfigs answers.

    ``has_times``: also the times of the brokers, which takes a further permission.
    """
    envelope: dict[str, Any] = {
        "cluster_id": _CLUSTER_ID,
        "cluster": "judged",
        "source": NAME,
        "source_kind": SourceKind.POLL,
        "occurred_not_before": now,
        "occurred_not_after": now,
        "collected_at": now,
    }
    own = dict(simulation.scenario.constants.min_insync_replicas_of)
    of_brokers = ConfigObserved(
        **envelope,
        topic="",
        key="min.insync.replicas",
        origin=ConfigOrigin.DESCRIBE,
        brokers=tuple(map(BrokerId, own)),
        values=tuple(own.values()),
    )
    of_topics = [
        ConfigObserved(
            **envelope,
            topic=plan.name,
            key="min.insync.replicas",
            value=None if plan.min_insync_replicas is None else str(plan.min_insync_replicas),
            origin=ConfigOrigin.DESCRIBE,
        )
        for plan in simulation.scenario.topics
    ]
    constants = simulation.scenario.constants
    times = [
        ConfigObserved(
            **envelope, topic="", key=key, value=str(getattr(constants, column)), origin=ConfigOrigin.DESCRIBE
        )
        for key, column in CLUSTER_TIMES.items()
    ]
    return [*([of_brokers] if own else []), *(times if has_times else []), *of_topics]
