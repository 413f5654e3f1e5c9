"""The rules in other formats are the rules: nothing is lost, and nothing is in them that the other side lacks."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from dashboards.render import without_queries


@pytest.fixture(scope="module")
def rules(files: dict[str, str]) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(files["alerts.yml"])
    return content


@pytest.fixture(scope="module")
def alerts(rules: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules["groups"][1]["rules"]}


@pytest.fixture(scope="module")
def grafana(files: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Give Grafana's rules by title, as Grafana has them: a double dollar is one."""
    assert not re.search(r"(?<!\$)\$(?!\$)", files["grafana-alerts.yaml"]), "a variable of the environment"
    (group,) = yaml.safe_load(files["grafana-alerts.yaml"].replace("$$", "$"))["groups"]
    return {rule["title"]: rule for rule in group["rules"]}


def test_the_manifest_for_the_operator_has_the_rule_file(files: dict[str, str], rules: dict[str, Any]) -> None:
    manifest = yaml.safe_load(files["prometheus-rule.yaml"])
    assert (manifest["apiVersion"], manifest["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert manifest["spec"] == rules


def test_the_mixin_has_every_rule_and_dashboard(files: dict[str, str], rules: dict[str, Any]) -> None:
    body = re.sub(r"^//.*\n", "", files["mixin.libsonnet"])
    parts = dict(re.findall(r"^(\w+)\+:: (.*?),$(?=\n\w|\n\})", body, re.MULTILINE | re.DOTALL))
    assert parts.keys() == {"prometheusAlerts", "prometheusRules", "grafanaDashboards"}
    groups = [*json.loads(parts["prometheusRules"])["groups"], *json.loads(parts["prometheusAlerts"])["groups"]]
    assert {"groups": groups} == rules
    imported = re.findall(r'"([\w.-]+)": \(import "([\w.-]+)"\)', parts["grafanaDashboards"])
    assert imported == [(name, name) for name in files if name.endswith(".json")]


def test_grafana_has_every_alert_with_its_labels_and_times(
    grafana: dict[str, dict[str, Any]], alerts: dict[str, dict[str, Any]]
) -> None:
    assert grafana.keys() == alerts.keys()
    for name, rule in grafana.items():
        assert rule["labels"] == alerts[name]["labels"]
        assert rule["for"] == alerts[name].get("for", "0s")
        assert rule["keepFiringFor"] == alerts[name].get("keep_firing_for", "0s")
        assert len(rule["uid"]) <= 40, "Grafana refuses longer ones"
        assert rule["condition"] in {part["refId"] for part in rule["data"]}
    assert len({rule["uid"] for rule in grafana.values()}) == len(grafana)


def test_what_grafana_asks_is_promql_of_metrics_alone(
    grafana: dict[str, dict[str, Any]], rules: dict[str, Any], repository: Path
) -> None:
    recorded = [rule["record"] for rule in rules["groups"][0]["rules"]]
    provisioning = repository / "deploy/grafana/provisioning/datasources/prometheus.yml"
    (source,) = yaml.safe_load(provisioning.read_text())["datasources"]
    for rule in grafana.values():
        query = rule["data"][0]
        assert query["datasourceUid"] == source["uid"]
        promql_parser.parse(query["model"]["expr"])
        assert [name for name in recorded if name in query["model"]["expr"]] == []


def test_texts_of_grafana_have_labels_only_and_the_command(grafana: dict[str, dict[str, Any]]) -> None:
    for rule in grafana.values():
        texts = rule["annotations"]
        assert " ".join(re.findall(r"\{\{(.*?)\}\}", str(texts))).replace(" ", "").count("$labels.") == str(
            texts
        ).count("{{")
        assert texts["summary"]
        assert "Run: " in texts["description"]


def test_a_sentence_with_a_query_is_left_out_as_a_whole() -> None:
    text = "A of {{ $labels.cluster }}. B: {{ with query }}x. Y{{ else }}z{{ end }}. Then c. {{ $value }} is d. Run: e"
    assert without_queries(text) == "A of {{ $labels.cluster }}. Then c. Run: e"


@pytest.mark.prometheus
def test_a_value_of_nothing_and_a_negative_one_fire_in_grafana_too(
    grafana: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    asked = {
        "KafkaReplicationTableUnreadable": ('{table="incidents"}', 'exporter_table_read_success{table="incidents"} 0'),
        "KafkaReplicationCertificateExpires": (
            '{cluster="c"}',
            'isrwatch_collector_client_certificate_expiry_timestamp_seconds{cluster="c", property="p"} 60',
        ),
    }
    tests = [
        {
            "interval": "1m",
            "input_series": [
                {"series": ("" if series.startswith("isrwatch") else "kafka_replication_") + series.rpartition(" ")[0],
                 "values": f"{series.rpartition(' ')[2]}x30"}
            ],
            "promql_expr_test": [
                {
                    "expr": grafana[name]["data"][0]["model"]["expr"],
                    "eval_time": "20m",
                    "exp_samples": [{"labels": labels, "value": 1}],
                }
            ],
        }
        for name, (labels, series) in asked.items()
    ]  # fmt: skip
    (tmp_path / "case.yml").write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": tests}))
    command = ["promtool", "test", "rules", str(tmp_path / "case.yml")]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
