"""Prometheus, Alertmanager and Grafana: the configuration that Compose mounts, checked by their own tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.board import Board
from streaming.contracts.alerts import ALERTS
from streaming.settings import load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
ALERTMANAGER = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text())
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)


def mounted(service: str, target: Path) -> Path:
    """Copy what a service mounts below a folder, where the container would see it."""
    for mount in SERVICES[service]["volumes"]:
        source, place, *_ = mount.split(":")
        if source.startswith("."):
            copy = target / place.lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            origin = (DEPLOY / source).resolve()
            shutil.copytree(origin, copy) if origin.is_dir() else shutil.copy(origin, copy)
    return target


def rules_of(container: Path) -> dict[Path, list[dict[str, Any]]]:
    """The groups of each rule file that Prometheus loads, by the globs of its configuration."""
    folder = container / "etc/prometheus"
    globs = yaml.safe_load((folder / "prometheus.yml").read_text())["rule_files"]
    paths = sorted(path for pattern in globs for path in folder.glob(pattern))
    return {path: yaml.safe_load(path.read_text())["groups"] for path in paths}


@pytest.mark.prometheus
def test_promtool_accepts_the_configuration_with_its_rules(tmp_path: Path) -> None:
    outcome = run("promtool", "check", "config", mounted("prometheus", tmp_path) / "etc/prometheus/prometheus.yml")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    rules = rules_of(tmp_path)
    assert f"{len(rules)} rule files found" in outcome.stdout
    counts = [sum(len(group["rules"]) for group in groups) for groups in rules.values()]
    assert [int(count) for count in re.findall(r"SUCCESS: (\d+) rules found", outcome.stdout)] == counts


def test_every_generated_rule_is_loaded_by_prometheus_and_nothing_else(tmp_path: Path) -> None:
    mounted("prometheus", tmp_path)
    written = [path.name for path in (ROOT / "dashboards/generated").rglob("*.yml")]
    assert "alerts.yml" in written
    assert [path.name for path in rules_of(tmp_path)] == sorted(written)


@pytest.mark.prometheus
def test_amtool_accepts_the_configuration() -> None:
    outcome = run("amtool", "check-config", DEPLOY / "alertmanager/alertmanager.yml")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.prometheus
def test_amtool_accepts_the_examples_of_receivers_and_their_texts_have_the_links(tmp_path: Path) -> None:
    text = (DEPLOY / "alertmanager/alertmanager.yml").read_text()
    switched_on = re.sub(r"^    # ( *(?:-|\w+:|href|text).*)$", r"    \1", text, flags=re.MULTILINE)
    (tmp_path / "alertmanager.yml").write_text(switched_on)
    outcome = run("amtool", "check-config", tmp_path / "alertmanager.yml")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    receivers = {each["name"]: each for each in yaml.safe_load(switched_on)["receivers"]}
    (slack,), (pager,) = receivers["critical"]["slack_configs"], receivers["critical"]["pagerduty_configs"]
    notification = {
        "status": "resolved",
        "commonLabels": {"cluster": "prod", "short_id": "prod-17"},
        "alerts": [{"annotations": {"page_url": "https://x/incidents/prod-17", "runbook_url": "https://x/runbook/A"}}],
    }
    (tmp_path / "data.json").write_text(json.dumps(notification))
    rendered = [
        run("amtool", "template", "render", f"--template.data={tmp_path}/data.json", "--template.glob=/nowhere/*",
            f"--template.text={each}").stdout.strip()
        for each in (slack["title"], slack["title_link"], pager["client_url"], pager["links"][0]["href"])
    ]  # fmt: skip
    page = notification["alerts"][0]["annotations"]["page_url"]  # type: ignore[index]
    assert rendered == ["Over: prod prod-17", page, page, "https://x/runbook/A"]


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("alertname=IsrwatchUnderMinIsr", "severity=critical", "short_id=prod-1"), "critical"),
        (("alertname=IsrwatchUnderReplicated", "severity=warning", "short_id=prod-1"), "warning"),
        (("alertname=IsrwatchBlind", "severity=critical"), "critical"),
        (("alertname=Other", "severity=critical"), "critical"),
        (("alertname=Other", "severity=warning"), "warning"),
        (("alertname=IsrwatchWatchdog", "severity=info"), "heartbeat"),
        (("alertname=Other", "severity=info"), "info"),
        (("alertname=Other",), "info"),
    ],
)
def test_a_severity_reaches_its_receiver(labels: tuple[str, ...], receiver: str) -> None:
    outcome = run(
        "amtool", "config", "routes", "test", f"--config.file={DEPLOY}/alertmanager/alertmanager.yml", *labels
    )
    assert outcome.stdout.strip() == receiver, outcome.stderr


def test_every_severity_of_an_alert_has_a_receiver() -> None:
    assert {alert.severity.value for alert in ALERTS.values()} <= {
        receiver["name"] for receiver in ALERTMANAGER["receivers"]
    }


def test_an_incident_is_a_group_and_what_none_explains_is_one_of_its_own() -> None:
    route = ALERTMANAGER["route"]
    assert route["group_by"] == ["cluster", "short_id", "severity"]
    own = [each for each in route["routes"] if 'short_id = ""' in each["matchers"]]
    about = ["condition", "subject", "broker", "topic", "group"]
    assert [each["group_by"] for each in own] == [["cluster", "alertname", *about]] * 2
    (blind,) = [each for each in route["routes"] if each["matchers"] == ['alertname = "IsrwatchBlind"']]
    assert blind["group_by"] == ["alertname"], "one notification, however many clusters are blind"
    assert "inhibit_rules" not in ALERTMANAGER, "what is inhibited after it was notified sends no resolved"


LONGEST_GROUP = 32_767
"""Bytes of a text of Kafka's protocol."""


def test_the_scrape_has_limits_and_asks_the_exporter() -> None:
    job, *own = PROMETHEUS["scrape_configs"]
    assert {"sample_limit", "body_size_limit", "label_limit"} <= set(job)
    assert job["label_value_length_limit"] > LONGEST_GROUP, (
        "any client may call its group so, and the scrape would fail"
    )
    assert job["job_name"] == "isrwatch"
    assert {each["job_name"] for each in own} == {"isrwatch-collector", "isrwatch-job"}, (
        "IsrwatchDegraded asks for them"
    )
    assert all(each["honor_labels"] for each in (job, *own)), "a target may have a label cluster of its own"
    assert job["static_configs"] == [{"targets": ["exporter:9308"]}]
    assert "127.0.0.1:9308:9308" in SERVICES["exporter"]["ports"]
    settings = load(DEPLOY / "isrwatch.toml")
    pages = [f"collector{settings.collect.listen}", f"job{settings.job.listen}"]
    assert [each["static_configs"] for each in own] == [[{"targets": [page]}] for page in pages]
    (manager,) = PROMETHEUS["alerting"]["alertmanagers"]
    assert manager["static_configs"] == [{"targets": ["alertmanager:9093"]}]


def test_grafana_finds_its_data_source_and_its_dashboards(tmp_path: Path) -> None:
    seen = mounted("grafana", tmp_path)
    provisioning = seen / "etc/grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    expected = ("isrwatch-prometheus", "prometheus", "http://prometheus:9090")
    assert (source["uid"], source["type"], source["url"]) == expected
    assert source["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/isrwatch.yml").read_text())["providers"]
    assert not provider["allowUiUpdates"]
    boards = {path.name: path for path in (seen / provider["options"]["path"].lstrip("/")).glob("*.json")}
    assert {json.loads(path.read_text())["uid"] for path in boards.values()} == {board.value for board in Board}
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert json.loads(boards[Path(home).name].read_text())["uid"] == Board.FLEET
