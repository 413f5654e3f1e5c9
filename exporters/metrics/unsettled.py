"""Metrics that count the partitions that are not as they should be: by missing broker, being reassigned, with an ELR.

They are counted at each scrape: few partitions are in such a state, unless much is wrong.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import OWN_PREFIX, ClusterMetric, Sample
from exporters.read_model.reassignments import is_reassigned
from streaming.contracts.observations import SourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.state import PartitionState


def _by_missing_broker(
    is_counted: Callable[[PartitionState], bool],
) -> Callable[[ClusterSnapshot], Iterator[Sample]]:
    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        counts: Counter[int] = Counter(
            broker
            for partition in cluster.unsettled.values()
            if partition.is_under_replicated and is_counted(partition)
            for broker in partition.replicas
            if broker not in partition.isr and broker not in partition.adding_replicas
        )
        for broker in cluster.known_brokers():
            yield (cluster.name, str(broker)), counts[broker]

    return samples


def _reassigning(cluster: ClusterSnapshot) -> Iterator[Sample]:
    yield (cluster.name,), sum(map(is_reassigned, cluster.unsettled.values()))


def _with_elr(cluster: ClusterSnapshot) -> Iterator[Sample]:
    """Count only what is unsettled: a partition with an ELR lacks its replicas in the ISR."""
    count = sum(bool(each.elr) for each in cluster.unsettled.values())
    if count or cluster.cluster.authority is SourceKind.METADATA_LOG:
        yield (cluster.name,), count


def _is_at_most_at_min_isr(partition: PartitionState) -> bool:
    return bool(partition.is_at_min_isr or partition.is_under_min_isr or partition.is_offline)


_AT_MINIMUM: Final = "partition_state.isr, partition_state.is_at_min_isr, partition_state.is_under_min_isr"
UNSETTLED_METRICS: Final = (
    ClusterMetric(
        name=f"{OWN_PREFIX}cluster_reassigning_partitions",
        labels=("cluster",),
        help="Partitions with a reassignment that is not complete.",
        source="partition_state.adding_replicas, partition_state.removing_replicas",
        samples=_reassigning,
    ),
    ClusterMetric(
        name=f"{OWN_PREFIX}cluster_elr_partitions",
        labels=("cluster",),
        help="Partitions with eligible leader replicas, which may be elected without loss besides the ISR (KIP-966); "
        "of a polled cluster absent at 0: brokers before Kafka 3.7 do not report them.",
        source="partition_state.elr",
        samples=_with_elr,
    ),
    ClusterMetric(
        name=f"{OWN_PREFIX}broker_missing_from_isr_partitions",
        labels=("cluster", "broker"),
        help="Under-replicated partitions that the broker is assigned to, while it is not in their ISR.",
        source="partition_state.replicas, partition_state.isr",
        samples=_by_missing_broker(lambda _: True),
    ),
    ClusterMetric(
        name=f"{OWN_PREFIX}broker_missing_at_min_isr_partitions",
        labels=("cluster", "broker"),
        help="Partitions at or under min ISR, or offline, that the broker is assigned to, while not in their ISR.",
        source=_AT_MINIMUM,
        samples=_by_missing_broker(_is_at_most_at_min_isr),
    ),
)
