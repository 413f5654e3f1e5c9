"""What one poll shows of a cluster, and what changed since the poll before.

Knows confluent-kafka's admin client for reading and the contracts for telling. A poll shows leaders, replicas and ISR;
epochs, eligible leader replicas and causes are not in this API.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import (
    NO_LEADER,
    BrokerId,
    ClusterId,
    TopicId,
)
from streaming.contracts.observations import BrokerObserved, Observation, PartitionObserved, SnapshotBegin, SnapshotEnd

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicMetadata

    from streaming.contracts.observations import SnapshotReason


class PartitionView(NamedTuple):
    """One partition as a broker's metadata tell it."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Everything one poll shows.

    ``answered_by`` is the broker whose view this is, negative where that is not known; ``topics`` maps a topic's name
    to its partitions, ``brokers`` an id to its address.
    """

    cluster_id: ClusterId
    answered_by: int
    brokers: dict[BrokerId, tuple[str, int]]
    topics: dict[str, dict[int, PartitionView]]
    topic_ids: dict[str, TopicId] = field(default_factory=dict)

    def led_by(self) -> dict[BrokerId, list[tuple[str, int]]]:
        """Group the partitions by their leader; leaderless ones are left out."""
        groups: dict[BrokerId, list[tuple[str, int]]] = {}
        for topic, parts in self.topics.items():
            for partition, view in parts.items():
                if view.leader != NO_LEADER:
                    groups.setdefault(view.leader, []).append((topic, partition))
        return groups


def read_view(client: AdminClient, *, cluster: str, seconds: float) -> ClusterView:
    """Ask any broker for the metadata of the whole cluster; topic ids are not in it.

    Args:
        client: a connected admin client.
        cluster: stands for the cluster id where the version has none (before Kafka 0.10.1).
        seconds: limit of the request.

    Raises:
        KafkaException: nobody answers in time.
    """
    found = client.list_topics(timeout=seconds)
    return ClusterView(
        cluster_id=ClusterId(found.cluster_id or cluster),
        answered_by=found.orig_broker_id,
        brokers=_brokers(found),
        topics={name: parts for name, topic in found.topics.items() if (parts := _partitions(topic))},
    )


def _brokers(found: ClusterMetadata) -> dict[BrokerId, tuple[str, int]]:
    return {BrokerId(broker.id): (broker.host or "", broker.port) for _, broker in sorted(found.brokers.items())}


def _partitions(topic: TopicMetadata) -> dict[int, PartitionView]:
    return {
        number: PartitionView(
            tuple(map(BrokerId, part.replicas)), _in_order(part.isrs, part.replicas), BrokerId(part.leader)
        )
        for number, part in sorted(topic.partitions.items())
        if part.replicas
    }


def _in_order(isr: Sequence[int], replicas: Sequence[int]) -> tuple[BrokerId, ...]:
    """Brokers list an ISR in any order, and another order is no change."""
    return tuple(
        sorted(map(BrokerId, isr), key=lambda broker: (broker not in replicas, [*replicas, broker].index(broker)))
    )


def is_doubtful(before: ClusterView, after: ClusterView) -> bool:
    """Tell whether an answer may be older than the one before.

    Brokers follow the metadata log each at its own pace, and one that is cut off from the controllers, or was frozen
    until just now, goes on telling what it knew: others no longer list it. What is missing may not have arrived there
    yet, and good news by another broker than before may be what was true before the bad: a poll shows no epochs that
    would tell.
    """
    if any(len(after.topics.get(topic, ())) < len(parts) for topic, parts in before.topics.items()):
        return True
    if after.answered_by < 0 or after.answered_by == before.answered_by:
        return False
    return after.answered_by not in before.brokers or _tells_of_recovery(before, after)


def _tells_of_recovery(before: ClusterView, after: ClusterView) -> bool:
    """Tell whether a broker came back, an ISR gained a member or a partition a leader."""
    return not after.brokers.keys() <= before.brokers.keys() or any(
        not set(view.isr) <= set(known.isr) or (known.leader == NO_LEADER != view.leader)
        for topic, parts in after.topics.items()
        if parts != before.topics.get(topic)
        for number, view in parts.items()
        if (known := before.topics.get(topic, {}).get(number)) is not None
    )


def is_same_cast(before: ClusterView, after: ClusterView) -> bool:
    """Tell whether the same brokers and the same topics are there; else only a snapshot can say who vanished."""
    return before.brokers == after.brokers and all(
        name in after.topics and after.topic_ids[name] == topic_id for name, topic_id in before.topic_ids.items()
    )


def steps(before: ClusterView, after: ClusterView, envelope: Mapping[str, Any]) -> list[Observation]:
    """Tell the partitions that differ from the view before."""
    return [
        observed
        for topic, parts in after.topics.items()
        if parts != before.topics.get(topic)
        for observed in _topic_steps(topic, before, after, envelope)
        if observed.cause is not None
    ]


def snapshot(
    before: ClusterView | None,
    after: ClusterView,
    envelope: Mapping[str, Any],
    *,
    snapshot_id: str,
    reason: SnapshotReason,
) -> list[Observation]:
    """Tell the whole view between two markers; what differs from the view before carries its inferred cause."""
    return [
        SnapshotBegin(**envelope, snapshot_id=snapshot_id, reason=reason),
        *(
            BrokerObserved(**envelope, in_snapshot=True, broker=broker, host=host, port=port)
            for broker, (host, port) in after.brokers.items()
        ),
        *(
            observed
            for topic in after.topics
            for observed in _topic_steps(topic, before, after, {**envelope, "in_snapshot": True})
        ),
        SnapshotEnd(
            **envelope,
            snapshot_id=snapshot_id,
            topic_ids=tuple(after.topic_ids[topic] for topic in after.topics),
            partition_counts=tuple(len(parts) for parts in after.topics.values()),
            brokers=tuple(after.brokers),
        ),
    ]


def _topic_steps(
    topic: str, before: ClusterView | None, after: ClusterView, envelope: Mapping[str, Any]
) -> Iterator[PartitionObserved]:
    topic_id = after.topic_ids[topic]
    is_known = before is not None and before.topic_ids.get(topic) == topic_id
    known = before.topics[topic] if before is not None and is_known else {}
    for number, view in after.topics[topic].items():
        cause = None if before is None else inferred_cause(known.get(number), view)
        yield PartitionObserved(
            **envelope,
            topic_id=topic_id,
            topic=topic,
            partition=number,
            replicas=view.replicas,
            isr=view.isr,
            leader=view.leader,
            cause=cause,
            evidence=None if cause is None else Evidence.INFERRED,
        )


def inferred_cause(before: PartitionView | None, after: PartitionView) -> Cause | None:
    """Tell what two polls allow to say: growth, a new placement, a new partition; None where nothing differs."""
    if before is None:
        return Cause.CREATED
    if before == after:
        return None
    if set(before.replicas) != set(after.replicas):
        return Cause.REASSIGNMENT
    if before.leader == after.leader and set(before.isr) < set(after.isr):
        return Cause.EXPAND
    return Cause.UNKNOWN
