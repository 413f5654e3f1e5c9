"""From the exposition text to the receiver: real Prometheus, real Alertmanager, the rules as they are shipped.

Only the waiting times are shortened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dashboards.alerts import AlertSettings, rule_file
from dashboards.render import as_yaml

pytestmark = pytest.mark.prometheus

IMPATIENT = AlertSettings(
    interval="1s",
    removals_window="20s",
    removals_keep_firing="1s",
    under_min_isr_for="1s",
    under_min_isr_keep_firing="1s",
    stale_for="1s",
    blind_for="4s",
    expected_clusters=("prod",),
    remembered="1h",
)


def _removals(cause: str, count: int) -> str:
    return f'kafka_replication_broker_isr_departures_total{{cluster="prod",broker="3",cause="{cause}"}} {count}'


def cluster_text(*, under_min_isr: int = 0, fenced: int = 0, age: float = 1) -> str:
    """One cluster of three brokers with one topic, in the exporter's format."""
    under = int(under_min_isr > 0)
    return f"""
kafka_replication_cluster_under_min_isr_partitions{{cluster="prod"}} {under_min_isr}
kafka_replication_cluster_under_replicated_partitions{{cluster="prod"}} {under_min_isr}
kafka_replication_cluster_offline_partitions{{cluster="prod"}} 0
kafka_replication_cluster_state_age_seconds{{cluster="prod"}} {age}
kafka_replication_partition_under_min_isr{{cluster="prod",topic="orders",partition="0"}} {under}
kafka_replication_topic_under_min_isr_partitions{{cluster="prod",topic="orders"}} {under_min_isr}
kafka_replication_partition_offline{{cluster="prod",topic="orders",partition="0"}} 0
kafka_replication_replica_isr_member{{cluster="prod",topic="orders",partition="0",broker="1"}} 1
kafka_replication_replica_isr_member{{cluster="prod",topic="orders",partition="0",broker="3"}} {1 - under}
{_removals("fenced", fenced)}
{_removals("controlled_shutdown", fenced)}
kafka_replication_source_observed_timestamp_seconds{{cluster="prod",channel="replication",source="log"}} 1
kafka_replication_source_age_seconds{{cluster="prod",channel="replication",source="log"}} {age}
"""


@pytest.fixture
def start(
    prometheus_server: Callable[..., Any], alertmanager_server: Callable[..., Any], webhook: Any
) -> Callable[[str], Any]:
    """Run everything against one exporter."""

    def run(target: str) -> Any:
        return prometheus_server(
            targets={"isrwatch": target},
            rules=[as_yaml(rule_file(IMPATIENT))],
            alertmanager=alertmanager_server(webhook),
        )

    return run


def test_under_min_isr_pages_with_topic_broker_and_cause_and_resolves(
    start: Callable[..., Any], exposition: Callable[..., Any], webhook: Any, eventually: Callable[..., Any]
) -> None:
    exporter = exposition(cluster_text())
    prometheus = start(exporter.address)
    eventually(lambda: prometheus.value("kafka_replication_cluster_under_min_isr_partitions") == 0)
    eventually(
        lambda: {alert["labels"]["alertname"] for alert in prometheus.alerts()} == {"Watchdog"},
        what="quiet: the alert of before the first scrape is over",
    )

    exporter.text = cluster_text(under_min_isr=2, fenced=2)
    page = eventually(lambda: webhook.alerts("KafkaUnderMinIsr", severity="page", cluster="prod"))[0]
    ticket = eventually(lambda: webhook.alerts("KafkaIsrShrink", broker="3", cause="fenced"))[0]
    assert page["annotations"]["description"].startswith("Cluster prod: 2 partitions are under min ISR now")
    assert "Topics: orders (2). Brokers missing from these ISRs: 3 (1)." in page["annotations"]["description"]
    assert ticket["annotations"]["summary"] == "Broker 3 of prod left ISRs: fenced"
    assert webhook.alerts("KafkaIsrShrink", cause="controlled_shutdown") == []

    exporter.text = cluster_text(fenced=2)
    eventually(lambda: webhook.alerts("KafkaUnderMinIsr", "resolved"))
    eventually(lambda: webhook.alerts("KafkaIsrShrink", "resolved"))
    assert webhook.alerts("KafkaReplicationMonitorStale", cluster="prod") == []


def test_an_exporter_that_dies_is_a_ticket_then_a_page_and_both_resolve_when_it_is_back(
    start: Callable[..., Any], exposition: Callable[..., Any], webhook: Any, eventually: Callable[..., Any]
) -> None:
    exporter = exposition(cluster_text())
    prometheus = start(exporter.address)
    eventually(lambda: prometheus.value("kafka_replication_cluster_state_age_seconds") == 1)

    exporter.status = 503
    ticket = eventually(lambda: webhook.alerts("KafkaReplicationMonitorStale", severity="ticket", cluster="prod"))[0]
    assert ticket["annotations"]["summary"] == "Replication of prod is not being monitored"
    assert "Sources: the exporter is not responding." in ticket["annotations"]["description"]
    eventually(lambda: webhook.alerts("KafkaReplicationMonitorBlind", severity="page", cluster="prod"))

    exporter.status = 200
    eventually(lambda: webhook.alerts("KafkaReplicationMonitorStale", "resolved", severity="ticket"))
    eventually(lambda: webhook.alerts("KafkaReplicationMonitorBlind", "resolved", severity="page"))
