"""The MBeans of partitions and of the logs of their replicas, of which a broker has one for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.mbean import PARTITION_LABELS, MBeanMetric, derived, running, sampled
from streaming.contracts import health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.metrics.metric import DatedSample, Sample
    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.state import PartitionState


def _partition(
    name: str, text: str, column: str, is_counted: Callable[[PartitionState], object], state: str
) -> MBeanMetric:
    """Define a flag of partitions: 1 of each for which it holds, and one 0 of the broker for all the others.

    An empty label is no label: a sum has all that it needs, without a series for every healthy partition.
    """

    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        if cluster.counts.in_state(state) is None:
            return
        brokers = running(cluster)
        for number in brokers:
            yield (cluster.name, str(number), "", ""), 0
        partitions = cluster.partitions() if state == health.AT_MIN_ISR else cluster.unsettled.values()
        for each in partitions:
            if is_counted(each) and each.leader in brokers:
                yield (cluster.name, str(each.leader), each.topic, str(each.partition)), 1

    mbean = f"kafka.cluster:type=Partition,name={name},topic=*,partition=*"
    return derived(mbean, text, f"partition_state.{column}", samples, PARTITION_LABELS)


def _log(name: str, column: str, text: str) -> MBeanMetric:
    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        rows = cluster.samples.replica_logs
        if rows is None:
            return
        columns = (rows[each].to_pylist() for each in ("topic_id", "partition", "broker", column, "collected_at"))
        for topic_id, partition, broker, value, at in zip(*columns, strict=True):
            topic = cluster.topics.get(topic_id)
            if value is not None and topic is not None:
                yield (cluster.name, str(broker), topic.topic, str(partition)), value, at

    mbean = f"kafka.log:type=Log,name={name},topic=*,partition=*"
    return sampled(mbean, text, f"replica_offsets.{column}", samples, PARTITION_LABELS)


PARTITION_MBEANS: Final = (
    _partition(
        "UnderReplicated",
        "1 of an under-replicated partition; one 0 of its leader for all others.",
        "is_under_replicated",
        lambda each: each.is_under_replicated,
        health.UNDER_REPLICATED,
    ),
    _partition(
        "UnderMinIsr",
        "1 of a partition that refuses writes with acks=all; one 0 of its leader for all others.",
        "is_under_min_isr",
        lambda each: each.is_under_min_isr,
        health.UNDER_MIN_ISR,
    ),
    _partition(
        "AtMinIsr",
        "1 of a partition that refuses writes after the loss of one more replica; one 0 of its leader for all others.",
        "is_at_min_isr",
        lambda each: each.is_at_min_isr,
        health.AT_MIN_ISR,
    ),
    _log(
        "LogStartOffset",
        "log_start_offset",
        "Offset of the oldest record of a replica that leads; of the others it is not asked for.",
    ),
    _log("LogEndOffset", "log_end_offset", "Offset of the next record of a replica."),
    _log("Size", "size_bytes", "Size of a replica, in bytes."),
)
