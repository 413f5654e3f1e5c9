"""The golden expositions of the exporter in a real Prometheus: what the overview and the alerts show."""

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
    """Give the numbers of the first row, by title; None is shown as "no fresh data"."""
    expressions = {panel["title"]: panel["targets"][0]["expr"] for panel in panels[:6]}
    return {title: prometheus.value(expression.replace("$cluster", ".+")) for title, expression in expressions.items()}


def test_an_exposition_is_shown_and_while_it_is_stale_nothing_looks_healthy(
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
        "Data age": 1,
    }

    exporter.text = (GOLDEN / "metrics_stale.prom").read_text()
    eventually(lambda: firing("KafkaReplicationMonitorStale", "page"))
    assert stats(prometheus, panels) == {
        "Offline partitions": None,
        "Under min ISR": None,
        "At min ISR": None,
        "Under-replicated": None,
        "Fenced brokers": None,
        "Data age": 61,
    }
    (page,) = firing("KafkaUnderMinIsr", "page")
    assert "(last known values: monitoring data is stale)" in page["annotations"]["description"]


def test_of_two_clusters_only_the_one_at_risk_pages(
    prometheus_server: Callable[..., Any], exposition: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    exporter = exposition((GOLDEN / "metrics_two_clusters.prom").read_text())
    prometheus = prometheus_server(targets={"isrwatch": exporter.address}, rules=[as_yaml(rule_file(IMPATIENT))])
    pages = eventually(lambda: prometheus.alerts("KafkaUnderMinIsr"))
    assert [page["labels"]["cluster"] for page in pages] == ["main"]
    ages = prometheus.query("kafka_replication_cluster_state_age_seconds")
    assert {row["metric"]["cluster"] for row in ages} == {"main", "other"}
