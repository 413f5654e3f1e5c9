"""``isrwatch doctor --prometheus`` against a real Prometheus: rules, scraping, Alertmanager."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dashboards
from dashboards.alerts import rule_file
from streaming.alert_settings import AlertChange, AlertsSettings
from streaming.commands.doctor_machine import Status
from streaming.commands.doctor_prometheus import Api, checks_of, expected_rules
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.settings import Settings
from tests.plugins.local_http import free_port, serving_exposition, wait_until
from tests.plugins.prometheus import Prometheus, running_prometheus

RULES = Path(dashboards.__file__).parent / "generated" / "alerts.yml"
DEFAULTS = AlertsSettings()
EXPECTED = expected_rules(DEFAULTS)
OTHERS = """
groups:
- name: copied
  rules:
  - alert: IsrwatchUnderReplicated
    expr: up + on () up
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Give one with our rules, one of them twice and broken; of two programs one is down."""
    hidden = 'kafka_replication_cluster_info{cluster="kubernetes",exported_cluster="prod"} 1'
    with serving_exposition(f"kafka_replication_build_info 1\n{hidden}\n") as page:
        targets = {"isrwatch-exporter": page.address, "isrwatch-job": f"127.0.0.1:{free_port()}"}
        with running_prometheus(tmp_path_factory.mktemp("prometheus"), targets, [RULES, OTHERS], None, "1s") as server:
            yield server


def said(server: Prometheus) -> list[tuple[Status, str]]:
    return [*checks_of(server.url, DEFAULTS)]


@pytest.mark.prometheus
def test_what_fails_in_prometheus_is_said(server: Prometheus) -> None:
    expected = [
        (Status.WARNING, r"IsrwatchUnderReplicated are loaded more than once \(.* copied\): remove one of the files"),
        (Status.PROBLEM, "1 alerting rule of isrwatch cannot be evaluated: .*many-to-many"),
        (Status.OK, f"{len(EXPECTED) - 1} of {len(EXPECTED)} alerting rules of isrwatch are loaded"),
        (Status.PROBLEM, r"127.0.0.1:\d+ of the job isrwatch-job cannot be scraped: start it, or open the port"),
        (
            Status.PROBLEM,
            r"127.0.0.1:\d+ of the job isrwatch-exporter has a label cluster that hides the Kafka clusters",
        ),
        (Status.OK, r"the exporter is scraped: 127.0.0.1:\d+"),
        (Status.PROBLEM, "no Alertmanager is connected, so that nobody is notified"),
    ]

    def is_so() -> bool:
        findings = said(server)
        return len(findings) == len(expected) and all(
            status is wanted and re.search(pattern, sentence)
            for (status, sentence), (wanted, pattern) in zip(findings, expected, strict=True)
        )

    wait_until(is_so, seconds=30.0)


@pytest.mark.prometheus
def test_rules_of_another_configuration_are_named(server: Prometheus) -> None:
    alerts = AlertsSettings(packs=("slo",), rules={"IsrwatchWatchdog": AlertChange(off=True)})

    def warnings() -> list[str]:
        return [sentence for status, sentence in checks_of(server.url, alerts) if status is Status.WARNING]

    missing, left_out, *_ = wait_until(lambda: found if len(found := warnings()) > 1 else None, seconds=30.0)
    assert missing.startswith("2 of the 17 alerting rules of isrwatch are not loaded: IsrwatchAvailabilityBurnsFast, ")
    assert left_out.startswith("IsrwatchWatchdog are loaded, and the configuration leaves them out; render the rules")


@pytest.mark.prometheus
def test_an_empty_prometheus_lacks_rules_and_exporter(tmp_path: Path) -> None:
    with running_prometheus(tmp_path, {}, [], None, "1s") as server:
        problems = [sentence for status, sentence in said(server) if status is Status.PROBLEM]
    assert [sentence.partition(":")[0] for sentence in problems] == [
        f"none of the {len(EXPECTED)} alerting rules of isrwatch is loaded",
        "no exporter of isrwatch is scraped, so no alert can fire",
        "no Alertmanager is connected, so that nobody is notified",
    ]


def test_the_rules_that_are_expected_are_those_of_the_configuration() -> None:
    assert len(EXPECTED) == 16
    alerts = AlertsSettings(packs=("groups",), rules={"IsrwatchWatchdog": AlertChange(off=True)})
    expected = expected_rules(alerts)
    assert "IsrwatchGroupStuck" in expected
    assert "IsrwatchWatchdog" not in expected
    assert set(expected) == {
        rule["alert"] for group in rule_file(Settings(alerts=alerts))["groups"] for rule in group["rules"]
    }


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://prometheus", "http://"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="--prometheus: write a URL, such as http://prometheus:9090"):
        [*checks_of(url, DEFAULTS)]


def test_a_url_without_a_server_is_one_sentence_without_the_login() -> None:
    with pytest.raises(ConnectionRefused, match=r"^--prometheus http://127\.0\.0\.1:\d+ gives no answer") as refusal:
        Api(f"http://me:secret@127.0.0.1:{free_port()}").get("rules")
    assert "secret" not in str(refusal.value)


def test_a_server_that_is_no_prometheus_is_named() -> None:
    refused = pytest.raises((ConnectionRefused, ConfigurationError), match="--prometheus http://")
    with serving_exposition("kafka_replication_build_info 1\n") as page, refused:
        [*checks_of(f"http://{page.address}", DEFAULTS)]
