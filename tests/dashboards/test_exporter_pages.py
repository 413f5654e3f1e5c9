"""The exporter's own pages (golden files) in a real Prometheus: what the overview and the alerts make of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dashboards.alerts import AlertSettings, rule_file
from dashboards.render import as_yaml

pytestmark = pytest.mark.prometheus

GOLDEN = Path(__file__).parents[1] / "golden"
IMPATIENT = AlertSettings(interval="1s", under_min_isr_for="1s", stale_ticket_for="1s", stale_page_for="2s")


def stats(prometheus: Any, panels: list[dict[str, Any]]) -> dict[str, float | None]:
    """Give the numbers of the first row, by title; None is shown as "no sight"."""
    asked = {panel["title"]: panel["targets"][0]["expr"] for panel in panels[:6]}
    return {title: prometheus.value(expression.replace("$cluster", ".+")) for title, expression in asked.items()}


def test_a_page_of_the_exporter_is_seen_and_when_its_sight_is_lost_nothing_looks_healthy(
    panels: list[dict[str, Any]],
    prometheus_server: Callable[..., Any],
    exposition: Callable[..., Any],
    eventually: Callable[..., Any],
) -> None:
    exporter = exposition((GOLDEN / "metrics.prom").read_text())
    prometheus = prometheus_server(targets={"isrwatch": exporter.address}, rules=[as_yaml(rule_file(IMPATIENT))])

    def firing(name: str, severity: str) -> list[dict[str, Any]]:
        alerts = prometheus.alerts(name)
        return [one for one in alerts if one["state"] == "firing" and one["labels"]["severity"] == severity]

    page = eventually(lambda: firing("KafkaUnderMinIsr", "page"))[0]
    assert page["labels"]["cluster"] == "main"
    assert (
        "1 partitions are under min ISR (producers with acks=all are refused), 1 are offline."
        in (page["annotations"]["description"])
    )
    assert stats(prometheus, panels) == {
        "Offline partitions": 1,
        "Under min ISR": 1,
        "At min ISR": 0,
        "Under-replicated": 2,
        "Fenced brokers": 1,
        "Age of our sight": 1,
    }

    exporter.text = (GOLDEN / "metrics_stale.prom").read_text()
    eventually(lambda: firing("KafkaReplicationMonitorStale", "page"))
    assert stats(prometheus, panels) == {
        "Offline partitions": None,
        "Under min ISR": None,
        "At min ISR": None,
        "Under-replicated": None,
        "Fenced brokers": None,
        "Age of our sight": 61,
    }
    (page,) = firing("KafkaUnderMinIsr", "page")
    assert "(last known: we lost sight of the cluster)" in page["annotations"]["description"]


def test_only_the_cluster_at_risk_pages_while_both_are_known(
    prometheus_server: Callable[..., Any], exposition: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    exporter = exposition((GOLDEN / "metrics_two_clusters.prom").read_text())
    prometheus = prometheus_server(targets={"isrwatch": exporter.address}, rules=[as_yaml(rule_file(IMPATIENT))])
    pages = eventually(lambda: prometheus.alerts("KafkaUnderMinIsr"))
    assert [page["labels"]["cluster"] for page in pages] == ["main"]
    known = prometheus.query("kafka_replication_cluster_state_age_seconds")
    assert {row["metric"]["cluster"] for row in known} == {"main", "other"}
