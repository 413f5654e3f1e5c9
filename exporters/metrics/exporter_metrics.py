"""The metrics of the exporter process itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from exporters.metrics.metric import OWN_PREFIX, ExporterMetric, MetricType
from streaming.web.http_counts import HTTP_METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.metrics.metric import Number, Sample
    from exporters.read_model.refresher import ExporterHealth, TableHealth
    from streaming.web.http_counts import HttpMetric


def metrics_path(cluster: str) -> str:
    """Return the path of the metrics of one cluster alone."""
    return f"/clusters/{quote(cluster, safe='')}/metrics"


def _per_table(name: str, text: str, value: Callable[[TableHealth], Number | None], unit: str = "") -> ExporterMetric:
    def samples(health: ExporterHealth) -> Iterator[Sample]:
        for table in health.tables:
            sample = value(table)
            if sample is not None:
                yield (table.table,), sample

    return ExporterMetric(
        name=f"{OWN_PREFIX}exporter_table_{name}", labels=("table",), help=text, unit=unit, samples=samples
    )


def _http(metric: HttpMetric) -> ExporterMetric:
    return ExporterMetric(
        name=f"{OWN_PREFIX}exporter_{metric.name}",
        kind=MetricType.COUNTER if metric.name.endswith("_total") else MetricType.GAUGE,
        labels=metric.labels,
        help=metric.help,
        unit=metric.unit,
        samples=lambda health: metric.samples(health.http),
    )


EXPORTER_METRICS: Final = (
    ExporterMetric(
        name=f"{OWN_PREFIX}build_info",
        labels=("version",),
        help="Version of isrwatch; always 1.",
        samples=lambda health: [((health.program_version,), 1)],
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_table_version",
        help="Version of the table partition_changes that this exposition shows.",
        samples=lambda health: [((), health.table_version)],
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_refresh_duration_seconds",
        help="Duration of the last refresh from the tables.",
        unit="seconds",
        samples=lambda health: [((), health.refresh_seconds)],
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_refresh_errors_total",
        kind=MetricType.COUNTER,
        help="Times that the change log could not be read or shown; the last state stays exposed until it is stale.",
        samples=lambda health: [((), health.refresh_errors)],
    ),
    _per_table(
        "read_success",
        "1 if the last reading of the table succeeded, 0 if not: the metrics that come from it are absent.",
        lambda table: int(table.is_readable),
    ),
    _per_table(
        "read_age_seconds",
        "Time since the table was last read, or found to have no newer version; absent before the first success.",
        lambda table: table.age_seconds,
        unit="seconds",
    ),
    _per_table(
        "read_duration_seconds",
        "Duration of the last reading of the table.",
        lambda table: table.read_seconds,
        unit="seconds",
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_partitions_without_detail",
        labels=("cluster",),
        help="Partitions without series of their own, although not healthy or just changed: export.detail_limit.",
        samples=lambda health: (((name,), count) for name, count in sorted(health.without_detail.items())),
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_drop_in_names",
        labels=("cluster", "path"),
        help="1 if this exposition has the names of kafka_exporter, of this cluster; "
        "0 while only the path has them, since they have no label for one of several clusters.",
        samples=lambda health: [((name, metrics_path(name)), flag) for name, flag in health.drop_in_names],
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_filter_info",
        labels=("option", "pattern"),
        help="The patterns of topics and groups with series of their own; one that begins with ! leaves out; always 1. "
        "Counts of clusters and brokers include the others.",
        samples=lambda health: (((option, pattern), 1) for option, pattern in health.filters),
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_family_exposed",
        labels=("family",),
        help="0 if a family of metrics is left out (--no-collector.NAME, export.disabled), else 1.",
        samples=lambda health: (((family,), int(is_exposed)) for family, is_exposed in health.families),
    ),
    *map(_http, HTTP_METRICS),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_series",
        help="Samples in this exposition.",
        samples=lambda health: [((), health.series)],
    ),
)


# The metrics that programs have of their own process, by the names that Prometheus' client libraries give them.


def _metric(name: str, text: str, unit: str = "") -> ExporterMetric:
    """Define one; without /proc, as on macOS, it has no sample."""

    def samples(health: ExporterHealth) -> Iterator[Sample]:
        if name in health.process:
            yield (), health.process[name]

    kind = MetricType.COUNTER if name.endswith("_total") else MetricType.GAUGE
    return ExporterMetric(name=name, kind=kind, help=text, unit=unit, samples=samples)


PROCESS_METRICS: Final = (
    _metric("process_cpu_seconds_total", "CPU time that the exporter has used, user and system.", "seconds"),
    _metric("process_resident_memory_bytes", "Resident memory of the exporter.", "bytes"),
    _metric("process_virtual_memory_bytes", "Virtual memory of the exporter.", "bytes"),
    _metric("process_start_time_seconds", "When the exporter was started, in seconds since 1970.", "seconds"),
    _metric("process_open_fds", "Open file descriptors of the exporter."),
    _metric("process_max_fds", "The most file descriptors that the exporter may open."),
)
