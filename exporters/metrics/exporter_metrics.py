"""The metrics of the exporter process itself."""

from __future__ import annotations

from typing import Final

from exporters.metrics.metric import OWN_PREFIX, ExporterMetric, MetricType

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
        help="Failed refreshes from the tables; the last good snapshot stays exposed.",
        samples=lambda health: [((), health.refresh_errors)],
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_series",
        help="Samples in this exposition.",
        samples=lambda health: [((), health.series)],
    ),
)
