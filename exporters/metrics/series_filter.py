"""Series left out by choice: of topics and groups by their names, of families of metrics by the family's.

What is left out has no series; counts of clusters, brokers and incidents include it all the same.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from heapq import merge
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.metrics.catalogue import CATALOGUE, FAMILIES
from exporters.metrics.metric import PartitionMetric, ReplicaMetric, SampledMetric
from streaming.name_patterns import NamePatterns
from streaming.settings import ExportSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.state import PartitionState

_GROUP_LABELS: Final = frozenset({"group", "consumergroup"})
_DEFAULTS: Final = ExportSettings()
_SUBJECTS: Final = {"topic": "topics", "group": "groups"}
"""The options about names, and the settings of the same meaning."""


class SeriesFilter:
    """The choice of a user.

    Attributes:
        left_out: the names of the metrics of the families that are left out.
        patterns: the patterns of names, by option; all names are ``*``.
        families: whether each family is exposed.
        shows_topic: whether a topic has series.
        shows_group: the same of a group.
    """

    def __init__(self, settings: ExportSettings = _DEFAULTS) -> None:
        """Take over checked settings."""
        disabled = frozenset(settings.disabled)
        self.left_out: Final = frozenset(metric.name for family in disabled for metric in FAMILIES[family])
        self.patterns: Final = tuple(
            (option, pattern)
            for option, key in _SUBJECTS.items()
            for pattern in dict.fromkeys(getattr(settings, key) or ("*",))
        )
        self.families: Final = tuple((family, family not in disabled) for family in FAMILIES)
        self.shows_topic: Final = _chosen(settings.topics)
        self.shows_group: Final = _chosen(settings.groups)

    def of_labels(self, labels: Sequence[str]) -> Callable[[Sequence[str]], bool]:
        """Return what says of the values of some labels whether their series is shown."""
        tests = [
            (place, self.shows_topic if label == "topic" else self.shows_group)
            for place, label in enumerate(labels)
            if label == "topic" or label in _GROUP_LABELS
        ]
        return lambda values: all(shows(values[place]) for place, shows in tests)

    def sentence(self) -> str | None:
        """Say what is left out, for the log; None while nothing is."""
        changed = [f"--{option} {pattern!r}" for option, pattern in self.patterns if pattern != "*"]
        options = ", ".join([*changed, *(f"--no-collector.{name}" for name, is_shown in self.families if not is_shown)])
        return f"series are left out by {options}; counts of clusters and brokers include them" if options else None


def _chosen(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    return lru_cache(1 << 16)(NamePatterns(patterns)) if patterns else lambda _: True


EVERYTHING: Final = SeriesFilter()


# Partitions with series of their own: those that are not healthy, or were not an hour ago. The rest is counted.
#
# 10,000 healthy partitions would have a quarter of a million series that say nothing. What kafka_exporter exposes of
# every partition, and the counts and counters of topics, brokers and clusters, exist always.


_OF_PARTITION: Final = sum(isinstance(metric, PartitionMetric) and not metric.is_drop_in for metric in CATALOGUE)
_OF_REPLICA: Final = sum(
    isinstance(metric, ReplicaMetric) or (isinstance(metric, SampledMetric) and metric.is_detail)
    for metric in CATALOGUE
)
Key = tuple[str, int]
"""Topic id and number."""
_NOTHING: Final[frozenset[int]] = frozenset()


class Detail(NamedTuple):
    """Selection of one cluster: partitions by topic id, and the number left out."""

    partitions: Mapping[str, frozenset[int]]
    left_out: int = 0

    def of(self, topic_id: str) -> frozenset[int]:
        """Return the partitions of a topic that are chosen."""
        return self.partitions.get(topic_id, _NOTHING)


NO_DETAIL: Final = Detail({})


def choose(
    clusters: Iterable[ClusterSnapshot], limit: int, shows_topic: Callable[[str], bool] = lambda _: True
) -> dict[str, Detail]:
    """Choose the partitions that have series: offline ones first, then by what else is wrong, then by the last change.

    Return them by cluster id. Among equals those stay that were chosen before, so that series do not come and go.
    ``limit`` is the most series that partitions and replicas have besides those of every partition.
    """
    together = list(clusters)
    chosen: dict[str, set[Key]] = {each.cluster.cluster_id: set() for each in together}
    series = 0
    for cluster, key, partition in _worst_first(together):
        if not shows_topic(partition.topic):
            continue
        of_cluster = chosen[cluster.cluster.cluster_id]
        if key not in of_cluster:
            series += _OF_PARTITION + _OF_REPLICA * len(partition.replicas)
            if series > limit:
                break
            of_cluster.add(key)
    return {each.cluster.cluster_id: _detail(each, chosen[each.cluster.cluster_id], shows_topic) for each in together}


def _detail(cluster: ClusterSnapshot, chosen: set[Key], shows_topic: Callable[[str], bool]) -> Detail:
    by_topic: dict[str, set[int]] = defaultdict(set)
    for topic_id, number in chosen:
        by_topic[topic_id].add(number)
    eligible = {**cluster.unsettled, **cluster.recent, **_lagging(cluster)}
    left_out = sum(shows_topic(each.topic) for each in eligible.values()) - len(chosen)
    return Detail({topic_id: frozenset(numbers) for topic_id, numbers in by_topic.items()}, left_out)


def _lagging(cluster: ClusterSnapshot) -> dict[Key, PartitionState]:
    """Return the partitions with a replica that is behind, those of topics left out that were deleted since."""
    keys = {(each.topic_id, each.partition) for each in cluster.samples.lagging_replicas or ()}
    topics = cluster.topics
    return {
        (topic_id, number): topics[topic_id].partitions[number]
        for topic_id, number in sorted(keys)
        if topic_id in topics and number in topics[topic_id].partitions
    }


def _worst_first(clusters: Iterable[ClusterSnapshot]) -> Iterator[tuple[ClusterSnapshot, Key, PartitionState]]:
    ranked: tuple[list[tuple[ClusterSnapshot, Key, PartitionState]], ...] = ([], [], [], [])
    for cluster in clusters:
        for key, partition in cluster.unsettled.items():
            ranked[_severity(partition)].append((cluster, key, partition))
        ranked[-1].extend((cluster, key, partition) for key, partition in _lagging(cluster).items())
    yield from chain(*ranked)
    yield from merge(*map(_newest_first, clusters), key=lambda each: -(each[2].changed_at or 0))


def _newest_first(cluster: ClusterSnapshot) -> Iterator[tuple[ClusterSnapshot, Key, PartitionState]]:
    return ((cluster, key, cluster.recent[key]) for key in reversed(cluster.recent))


def _severity(partition: PartitionState) -> int:
    """Rank what is wrong with a partition; 0 is worst."""
    if partition.is_offline:
        return 0
    if partition.is_under_min_isr:
        return 1
    return 2 if partition.is_under_replicated else 3
