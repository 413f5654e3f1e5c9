"""From the exposition text to the receiver: real Prometheus, real Alertmanager, the rules as they are shipped.

Only the waiting times are shortened. One server scrapes the page of each test, which is a cluster of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from dashboards.alerts import AlertSettings, rule_file
from dashboards.render import as_yaml
from tests.plugins.local_http import Exposition, Webhook, collecting_webhook, serving_exposition, wait_until
from tests.plugins.prometheus import running_alertmanager, running_prometheus

pytestmark = pytest.mark.prometheus

CLUSTERS = ("prod", "edge")
IMPATIENT = AlertSettings(
    interval="1s", removals_window="8s", removals_keep_firing="1s", under_min_isr_for="1s",
    under_min_isr_keep_firing="1s", stale_for="1s", blind_for="4s", expected_clusters=CLUSTERS, remembered="1h",
)  # fmt: skip


def _removals(cluster: str, cause: str, count: int) -> str:
    return f'kafka_replication_broker_isr_departures_total{{cluster="{cluster}",broker="3",cause="{cause}"}} {count}'


def cluster_text(cluster: str, *, under_min_isr: int = 0, fenced: int = 0, age: float = 1) -> str:
    """One cluster of three brokers with one topic, in the exporter's format."""
    under = int(under_min_isr > 0)
    own = f'cluster="{cluster}"'
    of_partition = f'{own},topic="orders",partition="0"'
    return f"""
kafka_replication_cluster_under_min_isr_partitions{{{own}}} {under_min_isr}
kafka_replication_cluster_under_replicated_partitions{{{own}}} {under_min_isr}
kafka_replication_cluster_offline_partitions{{{own}}} 0
kafka_replication_cluster_state_age_seconds{{{own}}} {age}
kafka_replication_partition_under_min_isr{{{of_partition}}} {under}
kafka_replication_topic_under_min_isr_partitions{{{own},topic="orders"}} {under_min_isr}
kafka_replication_partition_offline{{{of_partition}}} 0
kafka_replication_replica_isr_member{{{of_partition},broker="1"}} 1
kafka_replication_replica_isr_member{{{of_partition},broker="3"}} {1 - under}
{_removals(cluster, "fenced", fenced)}
{_removals(cluster, "controlled_shutdown", fenced)}
kafka_replication_source_observed_timestamp_seconds{{{own},channel="replication",source="log"}} 1
kafka_replication_source_age_seconds{{{own},channel="replication",source="log"}} {age}
"""


@dataclass
class Delivery:
    """The pages that are scraped, by cluster, and what the receiver was told."""

    pages: dict[str, Exposition]
    webhook: Webhook

    def told(self, name: str, cluster: str, status: str = "firing", **labels: str) -> list[dict[str, Any]]:
        """Wait until the receiver is told of an alert of a cluster."""
        asked = partial(self.webhook.alerts, name, status, cluster=cluster, **labels)
        return wait_until(asked, what=f"{name} of {cluster} is {status}")


@pytest.fixture(scope="module")
def delivery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivery]:
    """Run everything against one page for each cluster, until nothing fires."""
    with ExitStack() as stack:
        webhook = stack.enter_context(collecting_webhook())
        pages = {name: stack.enter_context(serving_exposition(cluster_text(name))) for name in CLUSTERS}
        prometheus = stack.enter_context(
            running_prometheus(
                tmp_path_factory.mktemp("prometheus"),
                targets={name: page.address for name, page in pages.items()},
                rules=[as_yaml(rule_file(IMPATIENT))],
                alertmanager=stack.enter_context(
                    running_alertmanager(tmp_path_factory.mktemp("alertmanager"), webhook)
                ),
            )
        )
        wait_until(lambda: len(prometheus.query("kafka_replication_cluster_state_age_seconds")) == len(CLUSTERS))
        wait_until(
            lambda: {alert["labels"]["alertname"] for alert in prometheus.alerts()} == {"Watchdog"},
            what="quiet: the alerts of before the first scrape are over",
        )
        webhook.notifications.clear()
        yield Delivery(pages, webhook)


def test_under_min_isr_pages_with_topic_broker_and_cause_and_resolves(delivery: Delivery) -> None:
    exporter = delivery.pages["prod"]
    exporter.text = cluster_text("prod", under_min_isr=2, fenced=2)
    page = delivery.told("KafkaUnderMinIsr", "prod", severity="page")[0]
    ticket = delivery.told("KafkaIsrShrink", "prod", broker="3", cause="fenced")[0]
    assert page["annotations"]["description"].startswith("Cluster prod: 2 partitions are under min ISR now")
    assert "Topics: orders (2). Brokers missing from these ISRs: 3 (1)." in page["annotations"]["description"]
    assert ticket["annotations"]["summary"] == "Broker 3 of prod left ISRs: fenced"
    assert delivery.webhook.alerts("KafkaIsrShrink", cause="controlled_shutdown") == []
    exporter.text = cluster_text("prod", fenced=2)
    delivery.told("KafkaUnderMinIsr", "prod", "resolved")
    delivery.told("KafkaIsrShrink", "prod", "resolved")
    for status in ("firing", "resolved"):
        assert delivery.webhook.alerts("KafkaIsrShrink", status, cluster="edge") == []


def test_an_exporter_that_dies_is_a_ticket_then_a_page_and_both_resolve_when_it_is_back(delivery: Delivery) -> None:
    exporter = delivery.pages["edge"]
    exporter.status = 503
    ticket = delivery.told("KafkaReplicationMonitorStale", "edge", severity="ticket")[0]
    assert ticket["annotations"]["summary"] == "Replication of edge is not being monitored"
    assert "Sources: the exporter is not responding." in ticket["annotations"]["description"]
    delivery.told("KafkaReplicationMonitorBlind", "edge", severity="page")
    exporter.status = 200
    delivery.told("KafkaReplicationMonitorStale", "edge", "resolved", severity="ticket")
    delivery.told("KafkaReplicationMonitorBlind", "edge", "resolved", severity="page")
    assert delivery.webhook.alerts("KafkaReplicationMonitorStale", cluster="prod") == []
