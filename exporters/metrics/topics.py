"""The metrics of topics: partitions that are not as they should be, and counters, which exist from 0.

Sums over the live partitions. A topic that is deleted and created again counts from 0 again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import (
    OWN_PREFIX,
    ClusterMetric,
    Freshness,
    MetricType,
    Sample,
    SampleInput,
    TopicMetric,
    TopicView,
)
from exporters.read_model.cluster_samples import is_reassigned
from streaming.contracts import health
from streaming.contracts.observations import SourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.state import PartitionState

LABELS: Final = ("cluster", "topic")
_PREFIX: Final = f"{OWN_PREFIX}topic_"


def _partitions(name: str, text: str, is_counted: Callable[[PartitionState], bool | None]) -> TopicMetric:
    """Define a count of the partitions in a state; ``name`` is the state's."""
    return TopicMetric(
        name=f"{_PREFIX}{name}_partitions",
        labels=LABELS,
        help=text,
        source=f"partition_state.is_{name}",
        value=lambda view: sum(map(bool, map(is_counted, view.topic.partitions.values()))),
    )


def _by_minimum(name: str, text: str, is_counted: Callable[[PartitionState], bool | None]) -> TopicMetric:
    """Define a count that is unknown where min ISR is unknown of all partitions."""

    def value(view: TopicView) -> int | None:
        with_isr = [is_counted(each) for each in view.topic.partitions.values() if not each.is_diskless]
        return health.known_by_minimum(sum(map(bool, with_isr)), len(with_isr), with_isr.count(None))

    return TopicMetric(
        name=f"{_PREFIX}{name}_partitions", labels=LABELS, help=text, source=f"partition_state.is_{name}", value=value
    )


def _counter(name: str, text: str, count: Callable[[PartitionState], int]) -> TopicMetric:
    return TopicMetric(
        name=f"{_PREFIX}{name}_total",
        kind=MetricType.COUNTER,
        labels=LABELS,
        help=text,
        freshness=Freshness.NOT_REQUIRED,
        source=f"partition_state.{name}",
        value=lambda view: sum(map(count, view.topic.partitions.values())),
    )


def _seconds(name: str, text: str) -> TopicMetric:
    """Define a counter of the seconds of all partitions in a state, rounded: the last bit of a sum may go back."""

    def value(view: TopicView) -> float:
        partitions = view.topic.partitions.values()
        return round(sum(view.observed.seconds_in(each, f"{name}_seconds") for each in partitions), 6)

    return TopicMetric(
        name=f"{_PREFIX}{name}_seconds_total",
        kind=MetricType.COUNTER,
        labels=LABELS,
        help=text,
        unit="seconds",
        freshness=Freshness.NOT_REQUIRED,
        depends=SampleInput.WATERMARK,
        source=f"partition_state.{name}_seconds, partition_state.{name}_since",
        value=value,
    )


TOPIC_METRICS: Final = (
    _partitions("offline", "Partitions of the topic without a leader.", lambda partition: partition.is_offline),
    _by_minimum(
        "under_min_isr",
        "Partitions of the topic that refuse writes with acks=all; absent while min ISR is unknown of all.",
        lambda partition: partition.is_under_min_isr,
    ),
    _by_minimum(
        "at_min_isr",
        "Partitions of the topic that lack a replica and whose writes stop with one more loss; absent while min ISR is "
        "unknown of all.",
        lambda partition: partition.is_at_min_isr,
    ),
    _partitions(
        "under_replicated",
        "Partitions of the topic with fewer replicas in sync than assigned.",
        lambda partition: partition.is_under_replicated,
    ),
    TopicMetric(
        name=f"{_PREFIX}reassigning_partitions",
        labels=LABELS,
        help="Partitions of the topic with a reassignment that is not complete.",
        source="partition_state.adding_replicas, partition_state.removing_replicas",
        value=lambda view: sum(map(is_reassigned, view.topic.partitions.values())),
    ),
    _counter("isr_shrinks", "Changes in which a broker left an ISR of the topic.", lambda each: each.isr_shrinks),
    _counter("leader_changes", "Changes of a leader of the topic.", lambda each: each.leader_changes),
    _counter(
        "unclean_elections",
        "Leaders elected from outside ISR and ELR; committed records of the topic may be lost.",
        lambda each: each.unclean_elections,
    ),
    _seconds("under_min_isr", "Time that partitions of the topic were under min ISR, in sum."),
)


# Metrics that count the partitions that are not as they should be: by missing broker, being reassigned, with an ELR.
#
# They are counted at each scrape: few partitions are in such a state, unless much is wrong.


def _by_missing_broker(is_counted: Callable[[PartitionState], bool]) -> Callable[[ClusterSnapshot], Iterator[Sample]]:
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
    if count or cluster.cluster.primary_source is SourceKind.METADATA_LOG:
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
