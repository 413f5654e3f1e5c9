"""The rendered lines of metrics of samples: kept until their rows change, or one of them is too old to be exposed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.compression import Block
from exporters.metrics.metric import SampledMetric
from exporters.metrics.quorum import READ_TOGETHER
from exporters.metrics.sample_ages import oldest_moment
from exporters.metrics.text import line
from streaming.contracts.sample_tables import BROKER_SETTINGS, REPLICA_OFFSETS, TOPIC_SETTINGS, TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporters.metrics.detail import Detail
    from exporters.metrics.metric import Number
    from exporters.metrics.series_filter import SeriesFilter
    from exporters.read_model.snapshot import ClusterSnapshot

SAMPLED_METRICS: Final = tuple(metric for metric in CATALOGUE if isinstance(metric, SampledMetric))
_FIELDS: Final = {
    REPLICA_OFFSETS.name: ("lagging_replicas", "broker_offsets_at", "topic_sizes"),
    TOPIC_SETTINGS.name: (TOPIC_SETTINGS.name, BROKER_SETTINGS.name),
    TRANSACTIONS.name: READ_TOGETHER,
}
"""The rows of a table are in a field of its name, or in these."""


class SampleLines(NamedTuple):
    """The lines of one metric, the time of the oldest sample among them and of the newest that was too old for them.

    The times are UTC microseconds; infinite without such a sample.
    """

    block: Block
    oldest_at: float = math.inf
    too_old_at: float = -math.inf


class ClusterSampleLines:
    """The lines of all metrics of samples of one cluster.

    Args:
        oldest: up to which age samples are exposed, in seconds, by table.
        chosen: what is left out by choice.
    """

    def __init__(self, oldest: Mapping[str, float], chosen: SeriesFilter) -> None:
        self._oldest, self._filter = oldest, chosen
        self._inputs: dict[str, tuple[Any, ...]] = {}
        self._lines: dict[str, SampleLines] = {}
        self._chosen: tuple[Detail | None, set[tuple[str, ...]]] = None, set()

    def update(
        self, cluster: ClusterSnapshot, detail: Detail, now: int, give_way: Callable[[], None] = lambda: None
    ) -> None:
        """Render the metrics of which an input changed; ``give_way`` is called between two of them."""
        for metric in SAMPLED_METRICS:
            give_way()
            inputs, before = _inputs(metric, cluster, detail), self._inputs.get(metric.name)
            if before is None or any(one is not other for one, other in zip(inputs, before, strict=True)):
                self._inputs[metric.name] = inputs
                self._lines[metric.name] = self._rendered(metric, cluster, detail, now)

    def block(self, metric: SampledMetric, cluster: ClusterSnapshot, detail: Detail, now: int) -> Block:
        """Return the lines of one metric, without those that are too old at ``now``; UTC microseconds."""
        lines = self._lines[metric.name]
        # After the clock was set back, samples may be young enough again.
        if not lines.too_old_at < self._since(metric, now) <= lines.oldest_at:
            lines = self._lines[metric.name] = self._rendered(metric, cluster, detail, now)
        return lines.block

    def shown(self, metric: SampledMetric) -> tuple[float, float]:
        """Return after when and up to when the lines of one metric are as they are, in UTC microseconds."""
        lines, age = self._lines[metric.name], oldest_moment(self._oldest, metric.table, 0)
        return lines.too_old_at - age, lines.oldest_at - age

    def _since(self, metric: SampledMetric, now: int) -> int:
        return oldest_moment(self._oldest, metric.table, now)

    def _rendered(self, metric: SampledMetric, cluster: ClusterSnapshot, detail: Detail, now: int) -> SampleLines:
        """Render the samples that are not too old; of labels that come twice the newest.

        A group's topic that was deleted and created again is sampled twice while the group moves to another
        coordinator.
        """
        since = self._since(metric, now)
        newest: dict[tuple[str, ...], tuple[Number, int]] = {}
        too_old_at = -math.inf
        chosen = self._labels_chosen(cluster, detail) if metric.is_detail else None
        shows = self._filter.of_labels(metric.labels)
        for labels, value, at in metric.samples(cluster):
            if not shows(labels) or (chosen is not None and labels[1:3] not in chosen):
                continue
            if at < since:
                too_old_at = max(too_old_at, at)
            elif labels not in newest or newest[labels][1] < at:
                newest[labels] = value, at
        lines = [line(metric.name, metric.labels, labels, value) for labels, (value, _) in newest.items()]
        oldest_at = min((at for _, at in newest.values()), default=math.inf)
        return SampleLines(Block(("".join(lines).encode(),) if lines else (), len(lines)), oldest_at, too_old_at)

    def _labels_chosen(self, cluster: ClusterSnapshot, detail: Detail) -> set[tuple[str, ...]]:
        of, labels = self._chosen  # once: a scrape may replace it at any time
        if of is not detail:
            labels = _chosen(cluster, detail)
            self._chosen = detail, labels
        return labels


def _inputs(metric: SampledMetric, cluster: ClusterSnapshot, detail: Detail) -> tuple[Any, ...]:
    """Return what the lines of a metric are made of: objects that are others when they changed."""
    rows = tuple(getattr(cluster.samples, name) for name in _FIELDS.get(metric.table, (metric.table,)))
    topics = (cluster.topics, cluster.unsettled) if metric.is_of_topics else ()
    return (*rows, *topics, detail.partitions) if metric.is_detail else (*rows, *topics)


def _chosen(cluster: ClusterSnapshot, detail: Detail) -> set[tuple[str, ...]]:
    return {
        (cluster.topics[topic_id].topic, str(number))
        for topic_id, numbers in detail.partitions.items()
        if topic_id in cluster.topics
        for number in numbers
    }
