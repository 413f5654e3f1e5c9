"""The rules in the formats in which others load them, all from the one rule file.

- a PrometheusRule, for the Prometheus operator of Kubernetes
- rules that Grafana manages itself, as a file for its provisioning
- a mixin, for those who render with jsonnet: JSON is jsonnet
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GRAFANA_INTERVAL: Final = "30s"
"""A multiple of ten seconds, which Grafana requires."""
DATA_SOURCE: Final = "isrwatch-prometheus"
_FOLDER: Final = "Kafka replication"
_LABEL: Final = re.compile(r"\{\{ \$labels\.\w+ \}\}")
_TEMPLATE: Final = re.compile(r"\{\{.*?\}\}")
_SENTENCE_ENDS: Final = re.compile(r"(?<=[.!?]) (?=[A-Z{])")
_BLOCK_BEGINS: Final = ("{{ range", "{{ with", "{{ if")


def prometheus_rule(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a PrometheusRule; requires operator 0.65 (``keep_firing_for``)."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "isrwatch", "labels": {"app.kubernetes.io/name": "isrwatch"}},
        "spec": dict(rules),
    }


def mixin(rules: Mapping[str, Any], dashboards: Mapping[str, str]) -> str:
    """Return a mixin: ``prometheusAlerts``, ``prometheusRules`` and ``grafanaDashboards``.

    Args:
        rules: a rule file, the recording rules in groups of their own.
        dashboards: names of the files of dashboards beside it.
    """
    alerting = [group for group in rules["groups"] if "alert" in group["rules"][0]]
    recording = [group for group in rules["groups"] if group not in alerting]
    parts = (
        ("prometheusAlerts", json.dumps({"groups": alerting}, indent=2, ensure_ascii=False)),
        ("prometheusRules", json.dumps({"groups": recording}, indent=2, ensure_ascii=False)),
        (
            "grafanaDashboards",
            "{" + ", ".join(f"{json.dumps(name)}: (import {json.dumps(name)})" for name in dashboards) + "}",
        ),
    )
    return "{\n" + "".join(f"{name}+:: {content},\n" for name, content in parts) + "}\n"


def grafana_rules(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file of provisioning with rules that Grafana evaluates.

    Grafana has no ``ALERTS`` and no queries in texts: alerts do not continue while data is stale, and texts keep only
    the sentences without queries. What is recorded is asked in full, so that the file needs no other one.
    """
    every = [rule for group in rules["groups"] for rule in group["rules"]]
    recorded = {rule["record"]: rule["expr"] for rule in every if "record" in rule}
    return {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1,
                "name": "kafka-replication",
                "folder": _FOLDER,
                "interval": GRAFANA_INTERVAL,
                "rules": [_escaped(_grafana_rule(rule, recorded)) for rule in every if "alert" in rule],
            }
        ],
    }


def _grafana_rule(rule: Mapping[str, Any], recorded: Mapping[str, str]) -> dict[str, Any]:
    expression = rule["expr"]
    for name, what in recorded.items():
        expression = f"({what})".join(re.split(rf"{name}\b", expression))
    annotations = rule["annotations"]
    texts = {name: without_queries(annotations[name]) for name in ("summary", "description")}
    links = {name: re.sub(r"\?.*", "", text) for name, text in annotations.items() if name not in texts}
    # A series fires whatever its value, as in Prometheus: every number to the power of 0 is 1.
    return {
        "uid": rule["alert"].lower(),
        "title": rule["alert"],
        "condition": "B",
        "data": [_query(f"({expression}) ^ 0"), _threshold()],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": rule.get("for", "0s"),
        "keepFiringFor": rule.get("keep_firing_for", "0s"),
        "labels": rule["labels"],
        "annotations": {**texts, "summary": texts["summary"] or rule["alert"], **links},
    }


def _query(expression: str) -> dict[str, Any]:
    model = {"refId": "A", "expr": expression, "instant": True, "range": False, "editorMode": "code"}
    return {
        "refId": "A",
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": DATA_SOURCE,
        "model": model,
    }


def _threshold() -> dict[str, Any]:
    above = {"evaluator": {"type": "gt", "params": [0]}}
    model = {"refId": "B", "type": "threshold", "expression": "A", "conditions": [above]}
    return {"refId": "B", "datasourceUid": "__expr__", "model": model}


def without_queries(text: str) -> str:
    """Return the sentences of a text that have no template but labels; "" if none is so."""
    return " ".join(sentence for sentence in _sentences(text) if not _TEMPLATE.search(_LABEL.sub("", sentence)))


def _sentences(text: str) -> Iterator[str]:
    """Split a text where a sentence ends outside of a block of templates."""
    sentence = ""
    for part in _SENTENCE_ENDS.split(text):
        sentence = f"{sentence} {part}" if sentence else part
        if _depth(sentence) == 0:
            yield sentence
            sentence = ""
    if sentence:
        raise AssertionError(f"a block of templates has no end: {sentence}")


def _depth(text: str) -> int:
    tags: list[str] = _TEMPLATE.findall(text)
    return sum(tag.startswith(_BLOCK_BEGINS) for tag in tags) - sum(tag.startswith("{{ end") for tag in tags)


def _escaped(value: Any) -> Any:  # noqa: ANN401 - any value of YAML
    """Double each dollar: the files of provisioning have variables of the environment."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return {key: _escaped(each) for key, each in value.items()} if isinstance(value, dict) else value
