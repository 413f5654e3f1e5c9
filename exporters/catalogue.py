"""Every metric, in the order of the page; the reference for people is made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.brokers import BROKER_METRICS
from exporters.clusters import CLUSTER_METRICS, SOURCE_METRICS
from exporters.drop_in import DROP_IN_METRICS
from exporters.incidents import INCIDENT_METRICS
from exporters.own_health import EXPORTER_METRICS
from exporters.partitions import PARTITION_METRICS

if TYPE_CHECKING:
    from exporters.metric import Metric

CATALOGUE: Final[tuple[Metric, ...]] = (
    *CLUSTER_METRICS,
    *INCIDENT_METRICS,
    *BROKER_METRICS,
    *PARTITION_METRICS,
    *SOURCE_METRICS,
    *DROP_IN_METRICS,
    *EXPORTER_METRICS,
)


def reference() -> str:
    """Write the catalogue as a Markdown table."""
    lines = ["| Metric | Type | Labels | Meaning | Stability |", "|---|---|---|---|---|"]
    for metric in CATALOGUE:
        labels = ", ".join(metric.labels) or "none"
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} | {metric.stability} |")
    return "\n".join(lines) + "\n"
