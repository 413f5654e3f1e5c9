"""The metrics that programs have of their own process, by the names that Prometheus' client libraries give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import ExporterMetric, MetricType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.metrics.metric import Sample
    from exporters.read_model.refresher import ExporterHealth


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
