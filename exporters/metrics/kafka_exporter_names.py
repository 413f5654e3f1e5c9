"""The metrics of kafka_exporter, under its names and labels, so that its dashboards and alerts work unchanged.

They have no label ``cluster``, so they are exposed only while there is one cluster, or the scrape selects one. Where
kafka_exporter drops a series because a broker is down, ours stays: the leader is then -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.groups import members, per_partition, per_topic
from exporters.metrics.metric import (
    ClusterMetric,
    Freshness,
    PartitionMetric,
    Sample,
    SampledMetric,
    SampleInput,
    TopicMetric,
    TopicView,
)
from streaming.contracts.identifiers import UNSEEN_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.read_model.cluster_samples import ReplicaOffsets
    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.state import PartitionState

LABELS: Final = ("topic", "partition")
GROUP_LABELS: Final = ("consumergroup", "topic")


def _brokers(cluster: ClusterSnapshot) -> Iterator[Sample]:
    if cluster.brokers:
        alive = [broker for broker in cluster.brokers.values() if broker.is_registered and not broker.is_fenced]
        yield (), len(alive)


def _broker_info(cluster: ClusterSnapshot) -> Iterator[Sample]:
    for number, broker in sorted(cluster.brokers.items()):
        if cluster.is_registered(broker) and broker.host is not None:
            yield (str(number), f"{broker.host}:{broker.port}"), 1


def _of_leader(offset: Callable[[ReplicaOffsets], int | None]) -> Callable[[PartitionState, TopicView], int | None]:
    """Return the leader's offset; while it has no sample, the largest offset of another replica."""

    def value(partition: PartitionState, view: TopicView) -> int | None:
        # Called for every partition whenever offsets moved: a loop, which ends at the leader, the first as a rule.
        largest = None
        for replica in view.offsets.get(partition.partition, ()):
            position = offset(replica)
            if position is None:
                continue
            if replica.broker == partition.leader:
                return position
            largest = position if largest is None else max(largest, position)
        return largest

    return value


_OF_TOPICS: Final = (
    ClusterMetric(
        name="kafka_brokers",
        help="Number of brokers that are registered and not fenced.",
        source="broker_state.is_registered, broker_state.is_fenced",
        samples=_brokers,
    ),
    ClusterMetric(
        name="kafka_broker_info",
        labels=("id", "address"),
        help="Address of a registered broker; always 1.",
        source="broker_state.host, broker_state.port",
        samples=_broker_info,
    ),
    TopicMetric(
        name="kafka_topic_partitions",
        labels=("topic",),
        help="Number of partitions of a topic.",
        source="partition_state.partition",
        value=lambda view: len(view.topic.partitions),
    ),
    PartitionMetric(
        name="kafka_topic_partition_current_offset",
        labels=LABELS,
        help="Current offset of a partition: its high watermark.",
        freshness=Freshness.OFFSETS,
        depends=SampleInput.OFFSETS,
        source="replica_offsets.high_watermark",
        value=_of_leader(lambda replica: replica.high_watermark),
    ),
    PartitionMetric(
        name="kafka_topic_partition_oldest_offset",
        labels=LABELS,
        help="Oldest offset of a partition: the start of its log.",
        freshness=Freshness.OFFSETS,
        depends=SampleInput.OFFSETS,
        source="replica_offsets.log_start_offset",
        value=_of_leader(lambda replica: replica.log_start_offset),
    ),
    PartitionMetric(
        name="kafka_topic_partition_in_sync_replica",
        labels=LABELS,
        help="Number of in-sync replicas of a partition.",
        source="partition_state.isr",
        value=lambda partition, _: len(partition.isr),
    ),
    PartitionMetric(
        name="kafka_topic_partition_leader",
        labels=LABELS,
        help="Broker id of a partition's leader; -1 if there is none.",
        source="partition_state.leader",
        value=lambda partition, _: None if partition.leader == UNSEEN_LEADER else partition.leader,
    ),
    PartitionMetric(
        name="kafka_topic_partition_leader_is_preferred",
        labels=LABELS,
        help="1 if a partition is led by its preferred leader, the first of its replicas.",
        source="partition_state.leader, partition_state.replicas",
        value=lambda partition, _: (
            None if partition.leader == UNSEEN_LEADER else int(partition.replicas[:1] == (partition.leader,))
        ),
    ),
    PartitionMetric(
        name="kafka_topic_partition_replicas",
        labels=LABELS,
        help="Number of replicas of a partition.",
        source="partition_state.replicas",
        value=lambda partition, _: len(partition.replicas),
    ),
    PartitionMetric(
        name="kafka_topic_partition_under_replicated_partition",
        labels=LABELS,
        help="1 if a partition is under-replicated.",
        source="partition_state.is_under_replicated",
        value=lambda partition, _: int(partition.is_under_replicated),
    ),
)
DROP_INS_OF_GROUPS: Final = (
    SampledMetric(
        name="kafka_consumergroup_members",
        labels=GROUP_LABELS[:1],
        help="Number of members of a group, of every protocol.",
        source="groups.members",
        samples=members,
    ),
    SampledMetric(
        name="kafka_consumergroup_current_offset",
        labels=(*GROUP_LABELS, "partition"),
        help="Committed offset of a group in a partition; absent without a commit.",
        source="group_offsets.committed_offset",
        samples=per_partition(lambda row: row.committed_offset),
    ),
    SampledMetric(
        name="kafka_consumergroup_current_offset_sum",
        labels=GROUP_LABELS,
        help="Sum of the committed offsets of a group in a topic.",
        source="group_offsets.committed_offset",
        samples=per_topic(lambda row: row.committed_offset),
    ),
    SampledMetric(
        name="kafka_consumergroup_lag",
        labels=(*GROUP_LABELS, "partition"),
        help="Offsets up to the high watermark that a group has not passed; absent while unknown. kafka_exporter and "
        "kafka-consumer-groups subtract the committed offset from the end: they count what was deleted, too, and are "
        "negative where a group stands beyond the end.",
        source="group_offsets.lag",
        samples=per_partition(lambda row: row.lag),
    ),
    SampledMetric(
        name="kafka_consumergroup_lag_sum",
        labels=GROUP_LABELS,
        help="Sum of the lag of a group in a topic, in offsets; absent while it is unknown of a partition.",
        source="group_offsets.lag",
        samples=per_topic(lambda row: row.lag),
    ),
    SampledMetric(
        name="kafka_consumer_lag_millis",
        labels=(*GROUP_LABELS, "partition"),
        help="For how many milliseconds a group could have read the oldest offset of a partition that it has not "
        "passed, as the exporter built into Grafana Alloy names it; absent while unknown.",
        source="group_offsets.lag_seconds",
        samples=per_partition(lambda row: None if row.lag_seconds is None else round(row.lag_seconds * 1000)),
    ),
)
DROP_IN_METRICS: Final = (*_OF_TOPICS, *DROP_INS_OF_GROUPS)
