"""The response under the names of Kafka's MBeans: derived values, and what agents of brokers report instead of them.

Where a broker's own agent is scraped (``collect.broker_metrics``), what it reports wins over what is derived, and what
cannot be derived is exposed, too. A derived counter never stands in for one of an agent, even while that is stale: the
two count since different moments, and a step from one to the other would read as changes of an ISR.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.compression import Block
from exporters.metrics.jmx_names import JMX_METRICS, LABELS
from exporters.metrics.metric import ClusterMetric, Metric, MetricType
from exporters.metrics.sample_ages import oldest_moment, stale_inputs
from exporters.metrics.series_filter import EVERYTHING, SeriesFilter
from exporters.metrics.text import Heading, end, line, metric_name
from exporters.read_model.cluster_names import clusters_by_name
from streaming.contracts.sample_tables import BROKER_METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from exporters.metrics.jmx_names import MBeanMetric
    from exporters.metrics.metric import Number, Sample
    from exporters.metrics.prepared import ScrapeRequest
    from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot

_OWN_NAMES: Final = frozenset(metric.name for metric in CATALOGUE)
_DERIVED: Final = {each.metric.name: each for each in JMX_METRICS}
_Values = dict[tuple[str, ...], "Number"]


class JmxExposition:
    """Renders snapshots under the names of Kafka's MBeans."""

    def __init__(
        self, stale_after_seconds: float, oldest: Mapping[str, float], chosen: SeriesFilter = EVERYTHING
    ) -> None:
        """Render nothing yet; ``oldest`` is up to which age samples are exposed, in seconds, by table."""
        self._filter = chosen
        self._stale_after = stale_after_seconds
        self._oldest = oldest

    def render(self, snapshot: ReplicationSnapshot, now: int, request: ScrapeRequest) -> list[Block]:
        """Render the response to a scrape at a time in UTC microseconds."""
        clusters = [
            cluster for name, cluster in clusters_by_name(snapshot).items() if request.cluster in {None, name}
        ]  # fmt: skip
        reported = self._reported(clusters, now)
        blocks: list[Block] = []
        for name in (*_DERIVED, *sorted(reported.keys() - _DERIVED.keys())):
            if request.wants(name):
                derived = _DERIVED.get(name)
                metric: Metric = derived.metric if derived is not None else _of_agents(name)
                lines = self._lines(metric, derived, clusters, now, reported.get(name, {}))
                if lines:
                    blocks.append(Heading(metric).block(is_openmetrics=request.is_openmetrics))
                    blocks.append(Block(("".join(lines).encode(),), len(lines)))
        return blocks + end(is_openmetrics=request.is_openmetrics)

    def _reported(
        self, clusters: Sequence[ClusterSnapshot], now: int
    ) -> dict[str, dict[tuple[str, ...], Number | None]]:
        """Return what agents report, by name and labels; None is too old."""
        since = oldest_moment(self._oldest, BROKER_METRICS.name, now)
        reported: dict[str, dict[tuple[str, ...], Number | None]] = defaultdict(dict)
        for cluster in clusters:
            for row in cluster.samples.broker_metrics or ():
                if metric_name(row.metric) and row.metric not in _OWN_NAMES:
                    value = row.metric_value if row.collected_at >= since else None
                    reported[row.metric][cluster.name, str(row.broker)] = value
        return reported

    def _lines(
        self,
        metric: Metric,
        derived: MBeanMetric | None,
        clusters: Sequence[ClusterSnapshot],
        now: int,
        reported: Mapping[tuple[str, ...], Number | None],
    ) -> list[str]:
        values = {} if derived is None else dict(self._derived(derived, clusters, now))
        counted_once = {cluster for cluster, *_ in values} if derived is not None and derived.is_of_cluster else set()
        for labels, value in reported.items():
            if labels[0] in counted_once and labels not in values:
                continue  # another controller's
            if value is not None:
                values[labels] = value
            elif metric.kind is MetricType.COUNTER:
                values.pop(labels, None)
        shows = self._filter.of_labels(metric.labels)
        return [line(metric.name, metric.labels, labels, value) for labels, value in values.items() if shows(labels)]

    def _derived(self, derived: MBeanMetric, clusters: Sequence[ClusterSnapshot], now: int) -> Iterable[Sample]:
        metric = derived.metric
        for cluster in clusters:
            if isinstance(metric, ClusterMetric):
                if metric.freshness not in stale_inputs(cluster, now, self._stale_after):
                    yield from metric.samples(cluster)
            else:
                since = oldest_moment(self._oldest, metric.table, now)
                yield from ((labels, value) for labels, value, at in metric.samples(cluster) if at >= since)


def _of_agents(name: str) -> Metric:
    kind = MetricType.COUNTER if name.endswith("_total") else MetricType.GAUGE
    text = "As the broker's own agent reports it."
    return Metric(name=name, kind=kind, labels=LABELS, help=text, source="broker_metrics.metric_value")
