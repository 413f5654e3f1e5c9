"""The response to a scrape: Prometheus text format 0.0.4, rendered by hand to stay fast at 100,000 partitions.

The lines of a topic are rendered again only when the topic, its open episodes or its offsets changed, and are kept as
bytes; a metric of which no line changed keeps its compressed bytes, too. Only the metrics of clusters, brokers and the
exporter itself are rendered at every scrape. OpenMetrics is not offered: nothing that it adds is used here (no
exemplars, no creation timestamps), and Prometheus accepts both formats.

Which series a scrape shows depends on the age of the data, never on a change of the tables: while an input is stale,
the metrics that require it (``Freshness``) are left out, so that an alert or a panel cannot take an old value for a
current one. Ages and counters stay. Each sample is judged by its own age, so a broker that hangs loses only its own.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.compression import Block
from exporters.metrics.metric import ClusterMetric, ExporterMetric, Freshness, Metric, MetricType, SampledMetric
from exporters.metrics.sample_ages import oldest_ages
from exporters.metrics.text import header, line, metric_name
from exporters.metrics.topic_render_cache import TOPIC_METRICS, ClusterLines
from exporters.read_model.cluster_names import clusters_by_name
from streaming.contracts.sample_tables import BROKER_METRICS, REPLICA_OFFSETS
from streaming.settings import CollectSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporters.metrics.metric import Number, Sample
    from exporters.read_model.refresher import ExporterHealth
    from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot

DEFAULT_INTERVALS: Final = CollectSettings()
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MICROS: Final = 1_000_000
_OWN_NAMES: Final = frozenset(metric.name for metric in CATALOGUE)
_TOPIC_INDEX: Final = {metric.name: index for index, metric in enumerate(TOPIC_METRICS)}
_HEADERS: Final = {metric.name: Block((header(metric).encode(),), 0) for metric in CATALOGUE}


@dataclass(frozen=True, slots=True)
class ScrapeRequest:
    """What one scrape selects: a cluster by name (None: all), metrics by name (empty: all)."""

    cluster: str | None = None
    names: frozenset[str] = frozenset()

    def wants(self, name: str) -> bool:
        """Return whether a metric is selected."""
        return not self.names or name in self.names

    def wants_topics(self) -> bool:
        """Return whether a metric of topics is selected: to render their lines is most of what a scrape costs."""
        return not self.names or not self.names.isdisjoint(_TOPIC_INDEX)


@dataclass(frozen=True, slots=True)
class ClusterAtScrape:
    """One cluster at the time of a scrape.

    Attributes:
        cluster: its snapshot.
        lines: the rendered lines of its topics; up to date with the snapshot if the scrape selects metrics of topics.
        stale: the inputs that are too old: metrics that require one of them are left out.
    """

    cluster: ClusterSnapshot
    lines: ClusterLines
    stale: frozenset[Freshness]

    def shows(self, metric: Metric) -> bool:
        """Return whether the input that a metric requires is fresh."""
        return metric.freshness not in self.stale


def stale_inputs(
    cluster: ClusterSnapshot, now: int, stale_after: float, offsets_after: float | None = None
) -> frozenset[Freshness]:
    """Return the inputs of a cluster that are older than ``stale_after`` seconds at ``now`` (UTC microseconds).

    Without a fresh primary source every input is stale: offsets and advice refer to the partitions it observes. Age is
    measured from the newest observation, not from the newest commit: a job that commits the backlog of an hour ago is
    writing, and its state is still an hour old. Exactly ``stale_after`` is still fresh, as in the alert; of offsets
    ``offsets_after``.
    """
    if cluster.is_stale(now, stale_after):
        return frozenset({Freshness.STATE, Freshness.OFFSETS, Freshness.ADVICE})
    advised_until = None if cluster.advice is None else cluster.advice.until
    newest = {
        Freshness.OFFSETS: (cluster.offsets_at, offsets_after or stale_after),
        Freshness.ADVICE: (advised_until, stale_after),
    }
    return frozenset(
        freshness for freshness, (at, oldest) in newest.items() if at is None or (now - at) / MICROS > oldest
    )


class Exposition:
    """Renders snapshots, and keeps the lines that did not change. Safe to call from any thread."""

    def __init__(self, stale_after_seconds: float, collect: CollectSettings = DEFAULT_INTERVALS) -> None:
        """Start without rendered lines.

        Args:
            stale_after_seconds: data age beyond which a cluster's state is left out.
            collect: how often samples are taken; one stays for two intervals, if that is longer.
        """
        self._stale_after = stale_after_seconds
        self._oldest = oldest_ages(stale_after_seconds, collect)
        self._lines: dict[str, ClusterLines] = {}
        self._lock = threading.Lock()

    def render(
        self, snapshot: ReplicationSnapshot, health: ExporterHealth, now: int, request: ScrapeRequest
    ) -> list[Block]:
        """Render the response to a scrape.

        Args:
            snapshot: content of the tables.
            health: state of the exporter.
            now: UTC microseconds; ages are measured from it.
            request: what the scrape selects; an unknown cluster gives the exporter's own metrics only.

        Returns:
            blocks of whole lines: the samples of a metric consecutive, as the format demands, a header only where
            samples follow.
        """
        by_name = clusters_by_name(snapshot)
        selected = [cluster for name, cluster in by_name.items() if request.cluster in {None, name}]
        # Two scrapes at once share the rendered lines: without the lock one would collect blocks while the other
        # replaces them, and mix two snapshots. Compression happens outside, on blocks that never change.
        with self._lock:
            self._drop_missing_clusters(snapshot)
            clusters = [self._at_scrape(cluster, now, request) for cluster in selected]
            blocks = [block for metric in CATALOGUE for block in self._blocks(metric, clusters, now, request)]
        blocks += _broker_blocks(clusters, now, self._oldest[BROKER_METRICS.name], request)
        series = sum(block.series for block in blocks)
        return blocks + _exporter_blocks(health, series, request)

    def _at_scrape(self, cluster: ClusterSnapshot, now: int, request: ScrapeRequest) -> ClusterAtScrape:
        cluster_id = cluster.cluster.cluster_id
        lines = self._lines.setdefault(cluster_id, ClusterLines(cluster.name))
        if lines.name != cluster.name:  # the name is a label of every line
            lines = self._lines[cluster_id] = ClusterLines(cluster.name)
        if request.wants_topics():
            lines.update(cluster)
        stale = stale_inputs(cluster, now, self._stale_after, self._oldest[REPLICA_OFFSETS.name])
        return ClusterAtScrape(cluster, lines, stale)

    def _drop_missing_clusters(self, snapshot: ReplicationSnapshot) -> None:
        for cluster_id in self._lines.keys() - snapshot.clusters.keys():
            del self._lines[cluster_id]

    def _blocks(
        self, metric: Metric, clusters: list[ClusterAtScrape], now: int, request: ScrapeRequest
    ) -> Iterator[Block]:
        """Yield the lines of one metric, of all clusters."""
        if isinstance(metric, ExporterMetric) or not request.wants(metric.name):
            return
        if metric.is_drop_in and len(clusters) != 1:  # without a label cluster, two clusters would collide
            return
        shown = [each for each in clusters if each.shows(metric)]
        if isinstance(metric, SampledMetric):
            since = now - int(self._oldest[metric.table] * MICROS)
            yield from _block(_HEADERS[metric.name], metric, _newest_since(metric, clusters, since))
        elif isinstance(metric, ClusterMetric):
            samples = (sample for each in shown for sample in metric.samples(each.cluster, now))
            yield from _block(_HEADERS[metric.name], metric, samples)
        else:
            blocks = [each.lines.block(_TOPIC_INDEX[metric.name]) for each in shown]
            if any(block.series for block in blocks):
                yield _HEADERS[metric.name]
                yield from blocks


def _newest_since(metric: SampledMetric, clusters: list[ClusterAtScrape], since: int) -> Iterable[Sample]:
    """Return the samples that are not older than a moment; of labels that come twice the newest.

    A group's topic that was deleted and created again is sampled twice while the group moves to another coordinator.
    """
    newest: dict[tuple[str, ...], tuple[Number, int]] = {}
    for each in clusters:
        for labels, value, at in metric.samples(each.cluster):
            if at >= since and (labels not in newest or newest[labels][1] < at):
                newest[labels] = value, at
    return ((labels, value) for labels, (value, _) in newest.items())


def _block(head: Block, metric: Metric, samples: Iterable[Sample]) -> Iterator[Block]:
    lines = [line(metric.name, metric.labels, values, value) for values, value in samples]
    if lines:
        yield head
        yield Block(("".join(lines).encode(),), len(lines))


def _broker_blocks(
    clusters: list[ClusterAtScrape], now: int, stale_after: float, request: ScrapeRequest
) -> list[Block]:
    """Render the metrics that the brokers expose themselves, under their own names.

    The freshness of each sample counts, not the cluster's: a sample that its broker does not renew disappears, as it
    would from a scrape of a broker that is down. A name that is ours or invalid would break the whole response.
    """
    samples: dict[str, list[Sample]] = defaultdict(list)
    for each in clusters:
        for sample in sorted(each.cluster.samples.broker_metrics or ()):
            name = sample.metric
            is_fresh = (now - sample.collected_at) / MICROS <= stale_after
            if is_fresh and request.wants(name) and name not in _OWN_NAMES and metric_name(name):
                samples[name].append(((each.cluster.name, str(sample.broker)), sample.metric_value))
    blocks: list[Block] = []
    for name, rows in sorted(samples.items()):
        kind = MetricType.COUNTER if name.endswith("_total") else MetricType.GAUGE
        metric = Metric(name=name, kind=kind, labels=("cluster", "broker"), help="Metric of the broker itself.")
        blocks += _block(Block((header(metric).encode(),), 0), metric, rows)
    return blocks


def _exporter_blocks(health: ExporterHealth, series: int, request: ScrapeRequest) -> list[Block]:
    own = [metric for metric in CATALOGUE if isinstance(metric, ExporterMetric) and request.wants(metric.name)]
    complete = replace(health, series=series + sum(len(list(metric.samples(health))) for metric in own))
    return [
        block for metric in own for block in _block(_HEADERS[metric.name], metric, metric.samples(complete))
    ]  # fmt: skip
