"""Which partitions have series of their own: those that are not healthy, or were not an hour ago. The rest is counted.

10,000 healthy partitions would have a quarter of a million series that say nothing. What kafka_exporter exposes of
every partition, and the counts and counters of topics, brokers and clusters, exist always.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.metric import PartitionMetric, ReplicaMetric, SampledMetric
from exporters.read_model.snapshot import RECENT_MICROS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.state import PartitionState

DETAIL_LIMIT: Final = 20_000
_OF_PARTITION: Final = sum(isinstance(metric, PartitionMetric) and not metric.is_drop_in for metric in CATALOGUE)
_OF_REPLICA: Final = sum(
    isinstance(metric, ReplicaMetric) or (isinstance(metric, SampledMetric) and metric.is_detail)
    for metric in CATALOGUE
)
_NOTHING: Final[frozenset[int]] = frozenset()


class Detail(NamedTuple):
    """What is chosen of one cluster: partitions by topic id, and how many are left out."""

    partitions: Mapping[str, frozenset[int]]
    left_out: int = 0

    def of(self, topic_id: str) -> frozenset[int]:
        """Return the partitions of a topic that are chosen."""
        return self.partitions.get(topic_id, _NOTHING)


NO_DETAIL: Final = Detail({})


class _Candidate(NamedTuple):
    """A partition that should have series, in the order in which they are chosen."""

    severity: int
    settled_for: int
    topic: str
    number: int
    cluster_id: str
    topic_id: str
    series: int


def choose(clusters: Iterable[ClusterSnapshot], limit: int) -> dict[str, Detail]:
    """Choose the partitions that have series: offline ones first, then by what else is wrong, then by the last change.

    Args:
        clusters: all that are exposed together.
        limit: the most series that partitions and replicas have beside those of every partition.

    Returns:
        by cluster id.
    """
    candidates = [each for cluster in clusters for each in _candidates(cluster)]
    if sum(each.series for each in candidates) > limit:
        candidates.sort()
    chosen: dict[str, dict[str, set[int]]] = {}
    left_out: dict[str, int] = defaultdict(int)
    series = 0
    for each in candidates:
        topics = chosen.setdefault(each.cluster_id, defaultdict(set))
        series += each.series
        if series > limit:
            left_out[each.cluster_id] += 1
        else:
            topics[each.topic_id].add(each.number)
    return {
        cluster_id: Detail({topic_id: frozenset(numbers) for topic_id, numbers in topics.items()}, left_out[cluster_id])
        for cluster_id, topics in chosen.items()
    }


def _candidates(cluster: ClusterSnapshot) -> Iterator[_Candidate]:
    at = cluster.watermark or 0
    recent = {key: each for key, each in cluster.recent.items() if (each.changed_at or 0) >= at - RECENT_MICROS}
    lagging = {(each.topic_id, each.partition) for each in cluster.samples.lagging_replicas or ()}
    partitions = {**recent, **cluster.unsettled}
    for topic_id, number in lagging - partitions.keys():
        topic = cluster.topics.get(topic_id)
        if topic is not None and number in topic.partitions:
            partitions[topic_id, number] = topic.partitions[number]
    for (topic_id, number), each in partitions.items():
        severity = _severity(each, is_lagging=(topic_id, number) in lagging)
        settled_for = max(0, at - (each.changed_at or 0)) if severity == _SETTLED else 0
        series = _OF_PARTITION + _OF_REPLICA * len(each.replicas)
        yield _Candidate(severity, settled_for, each.topic, number, cluster.cluster.cluster_id, topic_id, series)


_SETTLED: Final = 4


def _severity(partition: PartitionState, *, is_lagging: bool) -> int:
    """Rank what is wrong with a partition; 0 is worst."""
    wrong = (
        partition.is_offline,
        bool(partition.is_under_min_isr),
        partition.is_under_replicated,
        bool(is_lagging or partition.adding_replicas or partition.removing_replicas),
    )
    return wrong.index(True) if any(wrong) else _SETTLED
