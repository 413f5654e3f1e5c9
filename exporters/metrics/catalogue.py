"""Every metric, in the order of the exposition; the Markdown reference is rendered from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.brokers import BROKER_METRICS
from exporters.metrics.clusters import (
    CLUSTER_METRICS,
    CONDITION_METRICS,
    HEALTH_METRICS,
    INCIDENT_METRICS,
    SOURCE_METRICS,
)
from exporters.metrics.exporter_metrics import EXPORTER_METRICS, PROCESS_METRICS
from exporters.metrics.groups import GROUP_METRICS
from exporters.metrics.jmx_names import JMX_METRICS
from exporters.metrics.kafka_exporter_names import DROP_IN_METRICS, DROP_INS_OF_GROUPS
from exporters.metrics.partitions import PARTITION_METRICS
from exporters.metrics.quorum import QUORUM_METRICS, RECONCILIATION_METRICS, TRANSACTION_METRICS
from exporters.metrics.replicas import REPLICA_METRICS
from exporters.metrics.sample_ages import SAMPLE_AGE_METRICS
from exporters.metrics.settings import SETTINGS_METRICS
from exporters.metrics.topics import TOPIC_METRICS, UNSETTLED_METRICS

if TYPE_CHECKING:
    from exporters.metrics.metric import Metric

CATALOGUE: Final[tuple[Metric, ...]] = (
    *CLUSTER_METRICS,
    *HEALTH_METRICS,
    *CONDITION_METRICS,
    *INCIDENT_METRICS,
    *BROKER_METRICS,
    *UNSETTLED_METRICS,
    *TOPIC_METRICS,
    *PARTITION_METRICS,
    *REPLICA_METRICS,
    *GROUP_METRICS,
    *QUORUM_METRICS,
    *TRANSACTION_METRICS,
    *SETTINGS_METRICS,
    *RECONCILIATION_METRICS,
    *SOURCE_METRICS,
    *SAMPLE_AGE_METRICS,
    *DROP_IN_METRICS,
    *EXPORTER_METRICS,
    *PROCESS_METRICS,
)

FAMILIES: Final[dict[str, tuple[Metric, ...]]] = {
    "incidents": INCIDENT_METRICS,
    "topics": TOPIC_METRICS,
    "partitions": PARTITION_METRICS,
    "replicas": REPLICA_METRICS,
    "groups": (*GROUP_METRICS, *DROP_INS_OF_GROUPS),
    "quorum": QUORUM_METRICS,
    "transactions": TRANSACTION_METRICS,
    "settings": SETTINGS_METRICS,
    "reconciliation": RECONCILIATION_METRICS,
    "kafka_exporter": DROP_IN_METRICS,
}
"""Families that may be left out (``streaming.settings.EXPORT_FAMILIES``); the others show health and freshness."""


def reference() -> str:
    """Render the catalogue, and the names of MBeans, as Markdown tables."""
    lines = ["| Metric | Type | Labels | Meaning | Source | Stability |", "|---|---|---|---|---|---|"]
    for metric in CATALOGUE:
        labels = ", ".join(metric.labels) or "none"
        lines.append(
            f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} | {metric.source} | {metric.stability} |"
        )
    lines += [
        "",
        "At /metrics/jmx:",
        "",
        "| Metric | Type | Labels | Meaning | Source | MBean |",
        "|---|---|---|---|---|---|",
    ]
    for mbean, metric, _ in JMX_METRICS:
        labels = ", ".join(metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} | {metric.source} | `{mbean}` |")
    return "\n".join(lines) + "\n"
