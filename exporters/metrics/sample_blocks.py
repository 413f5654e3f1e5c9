"""Lines that are rendered at a scrape, or at every change of a cluster: of metrics that have few."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.compression import Block
from exporters.metrics.headings import Heading
from exporters.metrics.metric import ExporterMetric, JudgedMetric, Metric, MetricType
from exporters.metrics.text import metric_name, sample_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporters.metrics.metric import Sample
    from exporters.metrics.prepared import ClusterAtScrape
    from exporters.metrics.scrape_request import ScrapeRequest
    from exporters.read_model.refresher import ExporterHealth

HEADINGS: Final = {metric.name: Heading(metric) for metric in CATALOGUE}
_OWN_NAMES: Final = frozenset(metric.name for metric in CATALOGUE)


def sample_blocks(
    metric: Metric,
    samples: Iterable[Sample],
    request: ScrapeRequest,
    *,
    heading: Heading | None = None,
    created: float | None = None,
) -> Iterator[Block]:
    """Render the lines of one metric; ``created``: when it was 0 if it is a counter, in seconds since 1970."""
    # Prometheus keeps each as one more series: only what has no other labels says it.
    is_dated = request.is_openmetrics and metric.kind is MetricType.COUNTER and {*metric.labels} <= {"cluster"}
    when = created if is_dated else None
    lines = [sample_lines(metric, values, value, when) for values, value in samples]
    if lines:
        yield (heading or HEADINGS[metric.name]).block(is_openmetrics=request.is_openmetrics)
        yield Block(("".join(lines).encode(),), len(lines) if when is None else 2 * len(lines))


def health_blocks(
    clusters: list[ClusterAtScrape], now: int, stale_after: float, health: ExporterHealth, request: ScrapeRequest
) -> Iterator[Block]:
    """Render what is judged of each cluster, whether its state is stale or not."""
    unreadable = {each.table: each.table for each in health.tables if not each.is_readable}
    for metric in CATALOGUE:
        if isinstance(metric, JudgedMetric) and request.wants(metric.name):
            judged = (metric.samples(each.cluster, unreadable, now, stale_after) for each in clusters)
            yield from sample_blocks(metric, chain.from_iterable(judged), request)


def broker_blocks(clusters: list[ClusterAtScrape], since: int, request: ScrapeRequest) -> list[Block]:
    """Render the metrics that the brokers expose themselves, under their own names.

    The freshness of each sample counts, not the cluster's: a sample that its broker does not renew disappears, as it
    would from a scrape of a broker that is down. A name that is ours or invalid would break the whole response.
    """
    samples: dict[str, list[Sample]] = defaultdict(list)
    for each in clusters:
        for sample in sorted(each.cluster.samples.broker_metrics or ()):
            name = sample.metric
            if sample.collected_at >= since and request.wants(name) and name not in _OWN_NAMES and metric_name(name):
                samples[name].append(((each.cluster.name, str(sample.broker)), sample.metric_value))
    blocks: list[Block] = []
    for name, rows in sorted(samples.items()):
        kind = MetricType.COUNTER if name.endswith("_total") else MetricType.GAUGE
        metric = Metric(
            name=name,
            kind=kind,
            labels=("cluster", "broker"),
            help="Metric of the broker itself.",
            source="broker_metrics.metric_value",
        )
        blocks += sample_blocks(metric, rows, request, heading=Heading(metric))
    return blocks


def exporter_blocks(health: ExporterHealth, series: int, request: ScrapeRequest) -> list[Block]:
    """Render the metrics of the exporter itself, which count the samples before them and their own."""
    own = [metric for metric in CATALOGUE if isinstance(metric, ExporterMetric) and request.wants(metric.name)]
    created = health.process.get("process_start_time_seconds")

    def blocks(shown: ExporterHealth) -> list[Block]:
        return [
            each for metric in own for each in sample_blocks(metric, metric.samples(shown), request, created=created)
        ]

    return blocks(replace(health, series=series + sum(block.series for block in blocks(health))))
