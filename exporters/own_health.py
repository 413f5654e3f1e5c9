"""The metrics of the exporter itself."""

from __future__ import annotations

from typing import Final

from exporters.metric import OWN_PREFIX, ExporterMetric, Kind

EXPORTER_METRICS: Final = (
    ExporterMetric(
        name=f"{OWN_PREFIX}build_info",
        labels=("version",),
        help="Version of isrwatch; always 1.",
        samples=lambda health: [((health.program_version,), 1)],
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_table_version",
        help="Version of the table partition_changes that this page shows.",
        samples=lambda health: [((), health.table_version)],
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_refresh_duration_seconds",
        help="Duration of the last look at the tables.",
        unit="seconds",
        samples=lambda health: [((), health.refresh_seconds)],
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_refresh_errors_total",
        kind=Kind.COUNTER,
        help="Looks at the tables that failed; the last good page is kept.",
        samples=lambda health: [((), health.refresh_errors)],
    ),
    ExporterMetric(
        name=f"{OWN_PREFIX}exporter_series",
        help="Samples on this page.",
        samples=lambda health: [((), health.series)],
    ),
)
