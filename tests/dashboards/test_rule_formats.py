"""The rules in other formats are the rules: nothing is lost, and nothing is in them that the other side lacks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from dashboards.render import prometheus_rule, without_query
from streaming.alert_settings import AlertsSettings


@pytest.fixture(scope="module")
def rules(files: dict[str, str]) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(files["alerts.yml"])
    return content


@pytest.fixture(scope="module")
def alerts(rules: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}


@pytest.fixture(scope="module")
def grafana(files: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Give Grafana's rules by title."""
    (group,) = yaml.safe_load(files["grafana-alerts.yaml"])["groups"]
    return {rule["title"]: rule for rule in group["rules"]}


def test_the_manifest_for_the_operator_has_the_rule_file(files: dict[str, str], rules: dict[str, Any]) -> None:
    manifest = yaml.safe_load(files["prometheus-rule.yaml"])
    assert (manifest["apiVersion"], manifest["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert manifest["spec"] == rules


def test_the_mixin_has_every_rule_and_dashboard(files: dict[str, str], rules: dict[str, Any]) -> None:
    body = re.sub(r"^//.*\n", "", files["mixin.libsonnet"])
    parts = dict(re.findall(r"^(\w+)\+:: (.*?),$(?=\n\w|\n\})", body, re.MULTILINE | re.DOTALL))
    assert parts.keys() == {"prometheusAlerts", "prometheusRules", "grafanaDashboards"}
    assert json.loads(parts["prometheusAlerts"]) == rules
    assert json.loads(parts["prometheusRules"]) == {}, "nothing is recorded"
    imported = re.findall(r'"([\w.-]+)": \(import "([\w.-]+)"\)', parts["grafanaDashboards"])
    assert imported == [(name, name) for name in files if name.endswith(".json")]


def test_grafana_has_every_alert_with_its_labels_and_times(
    grafana: dict[str, dict[str, Any]], alerts: dict[str, dict[str, Any]]
) -> None:
    assert grafana.keys() == alerts.keys()
    for name, rule in grafana.items():
        assert rule["labels"] == alerts[name].get("labels", {})
        assert "$$" not in str(rule), "Grafana takes a dollar of queries and annotations as it is"
        assert rule["for"] == alerts[name].get("for", "0s")
        assert rule["keepFiringFor"] == (kept := alerts[name].get("keep_firing_for", "0s"))
        assert rule.get("missing_series_evals_to_resolve") == {"5m": 10, "15m": 30}.get(kept)
        assert len(rule["uid"]) <= 40, "Grafana refuses longer ones"
        assert rule["condition"] in {part["refId"] for part in rule["data"]}
    assert len({rule["uid"] for rule in grafana.values()}) == len(grafana)


def test_a_text_with_a_number_has_it_from_a_query_of_grafana(
    grafana: dict[str, dict[str, Any]], alerts: dict[str, dict[str, Any]]
) -> None:
    assert not re.search(r"\$value\b", str(grafana)), "a text that lists all values"
    rule = grafana["IsrwatchCertificateExpires"]
    assert "$values.V.Value" in rule["annotations"]["summary"]
    (query,) = [part for part in rule["data"] if part["refId"] == "V"]
    assert query["model"]["expr"] == alerts["IsrwatchCertificateExpires"]["expr"]


def test_the_manifest_has_the_labels_and_the_namespace_by_which_an_operator_selects_it(rules: dict[str, Any]) -> None:
    alerts = AlertsSettings(namespace="monitoring", labels={"release": "kube-prometheus-stack"})
    metadata = prometheus_rule(rules, alerts)["metadata"]
    assert metadata["namespace"] == "monitoring"
    assert metadata["labels"] == {"app.kubernetes.io/name": "isrwatch", "release": "kube-prometheus-stack"}
    assert "namespace" not in prometheus_rule(rules, AlertsSettings())["metadata"]


def test_what_grafana_asks_is_promql_of_its_data_source(grafana: dict[str, dict[str, Any]], repository: Path) -> None:
    provisioning = repository / "deploy/grafana/provisioning/datasources/prometheus.yml"
    (source,) = yaml.safe_load(provisioning.read_text())["datasources"]
    for rule in grafana.values():
        query = rule["data"][0]
        assert query["datasourceUid"] == source["uid"]
        promql_parser.parse(query["model"]["expr"])


def test_texts_of_grafana_have_no_query(grafana: dict[str, dict[str, Any]]) -> None:
    for rule in grafana.values():
        assert rule["annotations"].keys() - {"sureness"} == {"summary", "command"}
        assert "| query }}" not in str(rule["annotations"])
        assert rule["annotations"]["summary"]


def test_of_a_text_with_a_query_what_it_says_without_an_answer_is_left() -> None:
    text = "{{ with printf `a{b=%q}` $labels.b | query }}x{{ else }}y {{ if $labels.c }}z{{ end }}{{ end }}"
    assert without_query(text) == "y {{ if $labels.c }}z{{ end }}"
    assert without_query("{{ with $labels.a }}a{{ end }} b") == "{{ with $labels.a }}a{{ end }} b"
