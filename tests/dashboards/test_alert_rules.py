"""The alerts as promtool sees them: their unit tests pass, and would notice a rule that was broken."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.alerts import AlertSettings, rule_file

CASES = sorted(Path(__file__).parent.glob("*.yml"))
RULES = "../../dashboards/generated/alerts.yml"


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def alerts() -> list[dict[str, Any]]:
    """Every alert, that of expected clusters included."""
    _, group = rule_file(AlertSettings(expected_clusters=("prod",)))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def checked_against(directory: Path, case: str, rules: str) -> Path:
    """Copy a case so that it tests these rules."""
    (directory / "alerts.yml").write_text(rules)
    text = (Path(__file__).parent / case).read_text()
    assert RULES in text, f"{case} tests other rules"
    copy = directory / case
    copy.write_text(text.replace(RULES, "alerts.yml"))
    return copy


def only_those_of(case: str, rules: str) -> str:
    """Leave out the alerts that a case does not ask for: they take most of the time."""
    asked = set(re.findall(r"Kafka\w+", (Path(__file__).parent / case).read_text()))
    content = yaml.safe_load(rules)
    alerts = content["groups"][1]
    alerts["rules"] = [rule for rule in alerts["rules"] if rule["alert"] in asked]
    return yaml.safe_dump(content, sort_keys=False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_promtool_accepts_every_case(case: Path, files: dict[str, str], tmp_path: Path) -> None:
    copy = checked_against(tmp_path, case.name, only_those_of(case.name, files["alerts.yml"]))
    outcome = promtool("test", "rules", copy)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_promtool_finds_no_fault_with_the_rule_file(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(files["alerts.yml"])
    outcome = promtool("check", "rules", "--lint=all", "--lint-fatal", tmp_path / "alerts.yml")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


SHRINK = "kafka_isr_shrink.yml"
MIN_ISR = "kafka_under_min_isr.yml"
STALE = "kafka_replication_monitor_stale.yml"
STALE_FOR_A_DAY = "kafka_replication_monitor_stale_for_a_day.yml"
QUERY_DOWN = "kafka_replication_job_query_down.yml"

BREAKS = {
    "planned causes count": (SHRINK, r'\{cause!~"[^"]*"\}', ""),
    "one planned cause counts": (SHRINK, "controlled_shutdown|", ""),
    "a removal is not enough": (SHRINK, r"\[5m\]\)\) > 0", "[5m])) > 2"),
    "a burst flaps": (SHRINK, "keep_firing_for: 15m", "keep_firing_for: 1m"),
    "a ticket never ends": (SHRINK, "keep_firing_for: 15m", "keep_firing_for: 1h"),
    "broker and cause are lost": (
        SHRINK, r"max by \(cluster, broker, cause\) \(increase", "max by (cluster, broker) (increase"),
    "two exporters double": (SHRINK, "max by", "sum by"),
    "pages at once": (MIN_ISR, r"  for: 1m\n    keep_firing_for: 5m", "  keep_firing_for: 5m"),
    "pages late": (MIN_ISR, r"  for: 1m\n    keep_firing_for: 5m", "  for: 10m\n    keep_firing_for: 5m"),
    "pages flap": (MIN_ISR, "keep_firing_for: 5m", "keep_firing_for: 0s"),
    "stale data resolves a page": (MIN_ISR, 'alertname="KafkaUnderMinIsr", alertstate', 'alertname="X", alertstate'),
    "the dead outlive the living": (
        MIN_ISR,
        r'KafkaUnderMinIsr", alertstate="firing"\}\)\s+unless on \(cluster\) max by[^\n]*offline_partitions\)\)',
        'KafkaUnderMinIsr", alertstate="firing"}) unless on (cluster) vector(0))'),
    "stale at a minute sharp": (STALE, r"state_age_seconds\) > 60", "state_age_seconds) >= 60"),
    "the oldest exporter counts": (STALE, r"min by \(cluster\) \(kafka_repl", "max by (cluster) (kafka_repl"),
    "a cluster that disappeared is forgotten": (STALE_FOR_A_DAY, r"\[1d\]\)\)", "[1m]))"),
    "offsets count as fresh data": (STALE, '{channel="replication"}', ""),
    "a failing query is fine": (QUERY_DOWN, r"\n\s*or min by \(cluster, channel\)[^\n]*", ""),
    "a dead job is fine": (QUERY_DOWN, "source_report_age_seconds) > 60", "source_report_age_seconds) > 1e9"),
    "one failure is a ticket": (QUERY_DOWN, "for: 2m", "for: 0s"),
    "a query that fails again and again counts as up": (QUERY_DOWN, "min_over_time(", "max_over_time("),
    "each source is a ticket": (QUERY_DOWN, "by (cluster, channel) (min", "by (cluster, channel, source) (min"),
    "the oldest exporter of a report counts": (
        QUERY_DOWN, "min by (cluster, channel) (kafka_replication_source_report",
        "max by (cluster, channel) (kafka_replication_source_report"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_rule_would_be_noticed(name: str, files: dict[str, str], tmp_path: Path) -> None:
    case, pattern, replacement = BREAKS[name]
    pattern = pattern if "\\" in pattern else re.escape(pattern)
    broken, count = re.subn(pattern, replacement.replace("\\", r"\\"), files["alerts.yml"])
    assert count > 0, "this break changes nothing any more: adapt it"
    copy = checked_against(tmp_path, case, only_those_of(case, broken))
    assert promtool("check", "rules", tmp_path / "alerts.yml").returncode == 0, "the break is not even a rule"
    assert promtool("test", "rules", copy).returncode != 0


OF_NO_CLUSTER = {
    "KafkaReplicationTableUnreadable": "$labels.table",
    "KafkaReplicationProgramDown": "$labels.instance",
    "KafkaReplicationIncidentsQueryDown": "$labels.query",
    "KafkaReplicationSeriesNearLimit": "The exporter",
    "Watchdog": "This alert always fires",
}
"""What is about programs of the monitor, which may have every cluster."""


def test_every_alert_says_what_to_do(alerts: list[dict[str, Any]]) -> None:
    for alert in alerts:
        assert alert["labels"]["severity"] in {"page", "ticket", "info"}
        assert set(alert["annotations"]) == {"summary", "description"}
        subject = OF_NO_CLUSTER.get(alert["alert"], "$labels.cluster")
        assert subject in alert["annotations"]["description"]
        assert re.search(r" Run: (isrwatch|kafka-[\w-]+\.sh|amtool) .*[^.]$", alert["annotations"]["description"])
        assert "$value" not in str(alert["labels"]), "a value in a label makes a new alert of each value"


def test_the_documentation_lists_the_alerts_that_announced_work_keeps_quiet(
    alerts: list[dict[str, Any]], repository: Path
) -> None:
    section = (repository / "docs" / "planned-work.md").read_text().split("\n## Announce it\n")[1].split("\n## ")[0]
    listed = re.search(r"are quiet:(.*?)\.", section, re.DOTALL)
    assert listed is not None
    quiet = {alert["alert"] for alert in alerts if re.search(r"broker_maintenance\b", alert["expr"])}
    assert set(re.findall(r"Kafka\w+", listed[1])) == quiet
    others = set(re.findall(r"Kafka\w+", section)) - quiet
    assert others <= {alert["alert"] for alert in alerts}
