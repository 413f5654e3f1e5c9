"""From the exposition to the receiver: real Prometheus and Alertmanager, with the rules and routes that are shipped.

Only the waiting times are shortened. One server scrapes one page, of two clusters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.alerts import rule_file
from dashboards.render import as_yaml
from streaming.settings import ExportSettings, Settings
from tests.plugins.local_http import Exposition, Webhook, collecting_webhook, serving_exposition, wait_until
from tests.plugins.prometheus import Prometheus, running_alertmanager, running_prometheus

pytestmark = pytest.mark.prometheus

ROUTES = Path(__file__).parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"
SHORT = {"interval: 15s": "interval: 1s", "for: 15m": "for: 8s", "keep_firing_for: 15m": "keep_firing_for: 3s",
         "keep_firing_for: 5m": "keep_firing_for: 11s"}  # fmt: skip
WAIT = "6s"  # as shipped it is longer than an evaluation of all rules, which takes more than a second beside others
SETTINGS = Settings(export=ExportSettings(url="https://isrwatch.example"))
SENTENCE = "prod-17: broker 3 was lost. First: start broker 3 again"


def rules(short: Mapping[str, str] = SHORT) -> str:
    """Give the shipped rules with short times."""
    return re.sub("|".join(short), lambda found: short[found[0]], as_yaml(rule_file(SETTINGS)))


def routes(url: str) -> dict[str, Any]:
    """Give the shipped routes with short times; each receiver tells the same webhook."""
    shipped: dict[str, Any] = yaml.safe_load(ROUTES.read_text())
    for route in (shipped["route"], *shipped["route"]["routes"]):
        route |= {"group_wait": WAIT, "group_interval": "1s", "repeat_interval": "1h"}
    for receiver in shipped["receivers"]:
        if receiver["name"] in {"critical", "warning"}:
            receiver["webhook_configs"] = [{"url": url, "send_resolved": True}]
    return shipped


def raised(condition: str, severity: str, subject: str = "", short_id: str = "prod-17", cluster: str = "prod") -> str:
    labels = (
        f'cluster="{cluster}",condition="{condition}",subject="{subject}",severity="{severity}",short_id="{short_id}"'
    )
    return f"kafka_replication_condition_since_seconds{{{labels}}} 1000\n"


def exposed(*conditions: str) -> str:
    """Expose two fresh clusters, and what is raised of the one that is polled."""
    fresh = "".join(
        f'kafka_replication_cluster_partitions{{cluster="{name}"}} 6\n'
        f'kafka_replication_cluster_info{{cluster="{name}",cluster_id="{name}",primary_source="{source}"}} 1\n'
        for name, source in (("prod", "poll"), ("edge", "metadata_log"))
    )
    incident = (
        f'kafka_replication_incident_info{{cluster="prod",incident="prod-17",summary="{SENTENCE}"}} 1\n'
        'kafka_replication_incident_current_info{cluster="prod",incident="prod-17",current="prod-17"} 1\n'
    )
    return fresh + incident + "".join(conditions)


OF_INCIDENT = (
    raised("offline_partitions", "critical"),
    raised("under_min_isr", "critical"),
    raised("broker_down", "warning", "3"),
)


@dataclass
class Delivery:
    """The page that is scraped, and what the receiver was sent."""

    page: Exposition
    webhook: Webhook
    prometheus: Prometheus

    def sent(self, status: str, severity: str) -> list[dict[str, Any]]:
        """Give the notifications of a severity in which every alert has the status.

        Prometheus sends the end of each rule's alerts apart. With the short interval of these routes a busy machine
        may tell the end of one before the end of the other: it repeats what fires and announces nothing.
        """
        return [
            each
            for each in list(self.webhook.notifications)
            if {alert["status"] for alert in each["alerts"]} == {status}
            and each["alerts"][0]["labels"]["severity"] == severity
        ]


@pytest.fixture(scope="module")
def delivery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivery]:
    with ExitStack() as stack:
        webhook = stack.enter_context(collecting_webhook())
        page = stack.enter_context(serving_exposition(exposed()))
        folder = tmp_path_factory.mktemp("alertmanager")
        manager = stack.enter_context(running_alertmanager(folder, webhook, routes(webhook.url)))
        prometheus = stack.enter_context(
            running_prometheus(tmp_path_factory.mktemp("prometheus"), {"isrwatch": page.address}, [rules()], manager)
        )
        wait_until(lambda: prometheus.query("kafka_replication_cluster_partitions"))
        yield Delivery(page, webhook, prometheus)


def test_an_incident_is_one_notification_of_each_severity_through_a_restart_of_the_exporter(delivery: Delivery) -> None:
    delivery.webhook.notifications.clear()
    delivery.page.text = exposed(*OF_INCIDENT)
    wait_until(lambda: delivery.sent("firing", "critical") and delivery.sent("firing", "warning"))
    delivery.page.status = 503
    wait_until(lambda: delivery.prometheus.query("max_over_time(up[3s]) == 0"), what="the exporter is gone for a while")
    assert delivery.prometheus.query("kafka_replication_condition_since_seconds") == []
    delivery.page.status = 200
    wait_until(lambda: delivery.prometheus.query("kafka_replication_condition_since_seconds"))
    delivery.page.text = exposed()
    for severity in ("critical", "warning"):
        wait_until(partial(delivery.sent, "resolved", severity))
    (critical,), (warning,) = delivery.sent("firing", "critical"), delivery.sent("firing", "warning")
    names = {each["labels"]["alertname"] for each in critical["alerts"]}
    assert names == {"IsrwatchOfflinePartitions", "IsrwatchUnderMinIsr"}
    assert warning["alerts"][0]["labels"]["subject"] == "3"
    assert {each["annotations"]["summary"] for each in (*critical["alerts"], *warning["alerts"])} == {SENTENCE}
    pages = {each["annotations"]["page_url"] for each in (*critical["alerts"], *warning["alerts"])}
    assert pages == {"https://isrwatch.example/incidents/prod-17"}
    polled = {each["annotations"]["sureness"] for each in (*critical["alerts"], *warning["alerts"])}
    assert polled == {"the brokers are polled: causes are inferred, not proven"}
    assert len(delivery.sent("resolved", "critical")) == len(delivery.sent("resolved", "warning")) == 1


@pytest.mark.long
def test_an_exporter_that_dies_is_one_notification_of_all_clusters(delivery: Delivery) -> None:
    delivery.webhook.notifications.clear()
    delivery.page.status = 503
    wait_until(lambda: delivery.sent("firing", "critical"))
    delivery.page.status = 200
    wait_until(lambda: delivery.sent("resolved", "critical"))
    blind, over = delivery.webhook.notifications
    assert [each["labels"]["alertname"] for each in blind["alerts"]] == ["IsrwatchBlind"]
    assert blind["alerts"][0]["annotations"]["summary"].startswith("isrwatch is blind: there is no fresh data of any")
    assert blind["alerts"][0]["annotations"]["page_url"] == "https://isrwatch.example/"
    assert (over["status"], len(over["alerts"])) == ("resolved", 1)
