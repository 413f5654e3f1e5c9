"""The page that Prometheus reads: text format 0.0.4, written by hand because it must stay quick at 100,000 partitions.

A topic's lines are rendered when the topic changed, its episodes grew, or its offsets moved, and are kept as bytes; a
metric whose lines all stayed the same keeps its compressed form, too. Only the metrics of clusters, brokers and the
exporter itself are rendered on every scrape. The OpenMetrics form is not offered: it would add nothing that is
used here (no exemplars, no creation times), and Prometheus asks for both.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from exporters.catalogue import CATALOGUE
from exporters.compression import Block
from exporters.metric import ClusterMetric, ExporterMetric, Kind, Metric, Sight
from exporters.text import header, line, metric_name
from exporters.topics import TOPIC_METRICS, ClusterLines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporters.metric import Health, Sample
    from exporters.snapshot import ClusterSnapshot, ReplicationSnapshot

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MICROS: Final = 1_000_000
_OWN_NAMES: Final = frozenset(metric.name for metric in CATALOGUE)
_TOPIC_INDEX: Final = {metric.name: index for index, metric in enumerate(TOPIC_METRICS)}
_HEADERS: Final = {metric.name: Block((header(metric).encode(),), 0) for metric in CATALOGUE}


@dataclass(frozen=True, slots=True)
class Request:
    """What one scrape asks for: one cluster by name (else all), some metrics by name (else all)."""

    cluster: str | None = None
    names: frozenset[str] = frozenset()

    def wants(self, name: str) -> bool:
        """Tell whether a metric was asked for."""
        return not self.names or name in self.names


@dataclass(frozen=True, slots=True)
class Seen:
    """One cluster at the moment of a scrape, and which of its metrics may be shown."""

    cluster: ClusterSnapshot
    lines: ClusterLines
    lost: frozenset[Sight]

    def shows(self, metric: Metric) -> bool:
        """Tell whether our sight is fresh enough for a metric."""
        return metric.sight not in self.lost


def lost_sights(cluster: ClusterSnapshot, now: int, stale_after: float) -> frozenset[Sight]:
    """Tell which sights of a cluster are too old to state anything."""
    if cluster.is_stale(now, stale_after):
        return frozenset(Sight) - {Sight.NONE}
    advised_until = None if cluster.advice is None else cluster.advice.until
    until = {Sight.OFFSETS: cluster.offsets_at, Sight.ADVICE: advised_until}
    return frozenset(
        sight for sight, moment in until.items() if moment is None or (now - moment) / MICROS > stale_after
    )


class Exposition:
    """Renders snapshots; keeps what did not change. Any thread may ask."""

    def __init__(self, stale_after_seconds: float) -> None:
        """Keep nothing yet.

        Args:
            stale_after_seconds: age of our sight beyond which a cluster's state is not shown.
        """
        self._stale_after = stale_after_seconds
        self._lines: dict[str, ClusterLines] = {}
        self._lock = threading.Lock()

    def page(self, snapshot: ReplicationSnapshot, health: Health, now: int, request: Request) -> list[Block]:
        """Render a page.

        Args:
            snapshot: what the tables say.
            health: how the exporter is.
            now: UTC microseconds; ages are told from it.
            request: what is asked for; a cluster that is not known gives the exporter's own metrics only.

        Returns:
            blocks of whole lines, each metric in one run, headers only where samples follow.
        """
        by_name = snapshot.by_name()
        chosen = [cluster for name, cluster in by_name.items() if request.cluster in {None, name}]
        with self._lock:
            self._forget_all_but(snapshot)
            seen = [self._seen(cluster, now) for cluster in chosen]
            blocks = [block for metric in CATALOGUE for block in _blocks(metric, seen, now, request)]
        blocks += _broker_blocks(seen, now, self._stale_after, request)
        series = sum(block.series for block in blocks)
        return blocks + _exporter_blocks(health, series, request)

    def _seen(self, cluster: ClusterSnapshot, now: int) -> Seen:
        cluster_id = cluster.cluster.cluster_id
        lines = self._lines.setdefault(cluster_id, ClusterLines(cluster.name))
        if lines.name != cluster.name:
            lines = self._lines[cluster_id] = ClusterLines(cluster.name)
        lines.update(cluster)
        return Seen(cluster, lines, lost_sights(cluster, now, self._stale_after))

    def _forget_all_but(self, snapshot: ReplicationSnapshot) -> None:
        for cluster_id in self._lines.keys() - snapshot.clusters.keys():
            del self._lines[cluster_id]


def _blocks(metric: Metric, seen: list[Seen], now: int, request: Request) -> Iterator[Block]:
    """Give the lines of one metric, over all clusters."""
    if isinstance(metric, ExporterMetric) or not request.wants(metric.name):
        return
    if metric.is_drop_in and len(seen) != 1:
        return
    shown = [each for each in seen if each.shows(metric)]
    if isinstance(metric, ClusterMetric):
        samples = (sample for each in shown for sample in metric.samples(each.cluster, now))
        yield from _block(_HEADERS[metric.name], metric, samples)
        return
    blocks = [each.lines.block(_TOPIC_INDEX[metric.name]) for each in shown]
    if any(block.series for block in blocks):
        yield _HEADERS[metric.name]
        yield from blocks


def _block(head: Block, metric: Metric, samples: Iterable[Sample]) -> Iterator[Block]:
    lines = [line(metric.name, metric.labels, values, value) for values, value in samples]
    if lines:
        yield head
        yield Block(("".join(lines).encode(),), len(lines))


def _broker_blocks(seen: list[Seen], now: int, stale_after: float, request: Request) -> list[Block]:
    """Give the brokers' own metrics; a sample that its broker does not renew vanishes, as from a dead broker."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for each in seen:
        for told in each.cluster.broker_metrics:
            is_fresh = (now - told.collected_at) / MICROS <= stale_after
            if is_fresh and request.wants(told.metric) and told.metric not in _OWN_NAMES and metric_name(told.metric):
                samples[told.metric].append(((each.cluster.name, str(told.broker)), told.metric_value))
    blocks: list[Block] = []
    for name, known in sorted(samples.items()):
        kind = Kind.COUNTER if name.endswith("_total") else Kind.GAUGE
        metric = Metric(name=name, kind=kind, labels=("cluster", "broker"), help="As the broker's own metrics tell it.")
        blocks += _block(Block((header(metric).encode(),), 0), metric, known)
    return blocks


def _exporter_blocks(health: Health, series: int, request: Request) -> list[Block]:
    own = [metric for metric in CATALOGUE if isinstance(metric, ExporterMetric) and request.wants(metric.name)]
    complete = replace(health, series=series + len(own))
    return [
        block for metric in own for block in _block(_HEADERS[metric.name], metric, metric.samples(complete))
    ]  # fmt: skip
