"""Links of alerts and boards to the exporter's pages, over names of every kind, in Prometheus itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from dashboards.alerts import rule_file
from dashboards.boards import all_boards
from dashboards.links import page_of_alert, with_pages
from dashboards.promql import quoted
from dashboards.render import as_yaml, rendered, without_query
from exporters.answers import links
from exporters.answers.links import PageKind, Target, target_of
from streaming.alert_settings import AlertsSettings
from streaming.contracts.alerts import ALERTS, OPT_IN
from streaming.escapes import json_text
from streaming.settings import ExportSettings, Settings
from tests.dashboards.promtool import promtool
from tests.test_names import ODD

URL = "https://isrwatch.example/kafka"
SETTINGS = Settings(alerts=AlertsSettings(packs=OPT_IN), export=ExportSettings(url=f"{URL}/"))
RULES = {rule["alert"]: rule for group in rule_file(SETTINGS)["groups"] for rule in group["rules"]}
NAMES = [*(name[:900] for name in ODD if name), ".", "..", "~", "~x", "a+b", "a.md", "%2F", "a:b", "a b/c?d#e&f=g"]
ABOUT = {"incident": {"incident": "name"}, "group": {"cluster": "name", "group": "name"},
         "topic": {"cluster": "name", "topic": "name"}, "cluster": {"cluster": "name"}}  # fmt: skip


def path_of(kind: str, name: str) -> str:
    by_kind = {"incident": lambda: links.incident(name), "cluster": lambda: links.cluster(name),
               "topic": lambda: links.topic(name, name), "group": lambda: links.group(name, name)}  # fmt: skip
    return by_kind[kind]()


@pytest.mark.prometheus
def test_a_template_in_prometheus_writes_each_name_as_the_exporter_does(tmp_path: Path) -> None:
    names = [name for name in NAMES if not name.endswith(".md")]  # no short id ends so
    rules = [
        {"alert": kind, "expr": "up >= 0", "annotations": {"url": page_of_alert(URL, about)}}
        for kind, about in ABOUT.items()
    ]
    tests = [
        {
            "eval_time": "0m",
            "alertname": kind,
            "exp_alerts": [
                {"exp_labels": {"name": name}, "exp_annotations": {"url": URL + as_prometheus(path_of(kind, name))}}
                for name in names
            ],
        }
        for kind in ABOUT
    ]
    series = [{"series": f"up{{name={quoted(name)}}}", "values": "1"} for name in names]
    document = {
        "rule_files": ["rules.yml"],
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": tests}],
    }
    (tmp_path / "rules.yml").write_text(as_yaml({"groups": [{"name": "links", "rules": rules}]}))
    (tmp_path / "test.yml").write_text(json_text(document))
    done = promtool("test", "rules", tmp_path / "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def as_prometheus(path: str) -> str:
    """Write a path as Prometheus does, which encodes ``:`` in a parameter, too."""
    before, mark, parameters = path.partition("?")
    return before + mark + parameters.replace(":", "%3A")


def filled(template: str, **labels: str) -> str:
    """Fill a template in with labels, as far as templates of links go."""
    first, second = re.search(r"if \$labels\.(\w+) \}\}", template), re.search(r"else if \$labels\.(\w+)", template)
    assert first
    assert second
    parts = re.split(r"\{\{ (?:if|else if|else|end)[^}]*\}\}", template)
    chosen = parts[1] if labels.get(first[1]) else parts[2] if labels.get(second[1]) else parts[3]
    return parts[0] + re.sub(
        r"\{\{ \$labels\.(\w+) .*?\}\}", lambda label: quote(labels[label[1]].split(":")[0]), chosen
    )


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_leads_to_its_incident_or_else_to_what_it_is_about(name: str) -> None:
    template = RULES[name]["annotations"]["page_url"]
    labels = dict.fromkeys(re.findall(r"\$labels\.(\w+)", str(RULES[name])), "7") | {"cluster": "prod"}
    of_id = re.findall(r"\{\{ if \$labels\.(\w+) \}\}", template)[0]
    assert filled(template, **{**labels, of_id: "prod-17"}) == f"{URL}/incidents/prod-17"
    without = filled(template, **{**labels, of_id: ""})
    target = target_of(urlsplit(without.removeprefix(URL)).path)
    assert target is not None
    assert target.cluster == "prod"
    kinds = {"group": PageKind.GROUPS, "topic": PageKind.TOPIC, "broker": PageKind.BROKER}
    query = urlsplit(RULES[name]["annotations"]["runbook_url"]).query
    runbook = parse_qs(query.removeprefix("{{ if $labels.cluster }}"))
    about = next((kind for kind in kinds if kind in runbook and "cluster" in runbook), "")
    is_controller = name == "IsrwatchQuorumVoterBehind"
    assert target.kind is (PageKind.CLUSTER if is_controller or not about else kinds[about])
    assert filled(template, **{**labels, of_id: "", "cluster": ""}) == f"{URL}/"


def test_grafana_and_the_operator_have_the_same_links_and_without_an_address_there_is_none() -> None:
    files = rendered(SETTINGS)
    for name in ("alerts.yml", "prometheus-rule.yaml", "grafana-alerts.yaml", "mixin.libsonnet"):
        assert files[name].count("page_url") == len(ALERTS)
    template = RULES["IsrwatchOfflinePartitions"]["annotations"]["page_url"]
    assert without_query(template) == template, "Grafana has no queries in texts"
    assert template in files["grafana-alerts.yaml"]
    assert not [
        name for name, content in rendered(Settings()).items() if "page_url" in content or "in isrwatch" in content
    ]


# Boards.


def _links(content: Any) -> list[dict[str, str]]:
    if isinstance(content, list):
        return [link for each in content for link in _links(each)]
    if not isinstance(content, dict):
        return []
    mine = [content] if {"title", "url"} <= content.keys() and "/" in str(content["url"]) else []
    return mine + [link for each in content.values() for link in _links(each)]


def test_cells_that_lead_to_a_board_lead_to_the_page_too() -> None:
    boards = {name: json.loads(content) for name, content in rendered(SETTINGS).items() if name.endswith(".json")}
    seen = set()
    for name, board in boards.items():
        every = [link["url"] for link in _links(board["panels"])]
        to_boards = [url for url in every if re.search(r"&var-(broker|topic|group|cluster)=\$", url)]
        to_pages = [url.removeprefix(URL) for url in every if url.startswith(f"{URL}/clusters/")]
        assert len(to_pages) == len(to_boards), name
        for url in to_pages:
            sent = url.replace("${cluster:percentencode}", "a%2Fb")
            sent = re.sub(r"\$\{[\w.]+:percentencode\}", "7" if "/brokers/" in sent else "c%20d", sent)
            target = target_of(urlsplit(sent).path)
            assert target is not None, url
            seen.add((target.kind, parse_qs(urlsplit(sent).query).get("name", [""])[0]))
            assert target.cluster == ("c d" if target.kind is PageKind.CLUSTER else "a/b")
    assert seen == {(PageKind.CLUSTER, ""), (PageKind.BROKER, ""), (PageKind.TOPIC, ""), (PageKind.GROUPS, "c d")}
    (incident,) = [link["url"] for link in _links(boards["isrwatch-cluster.json"]) if "/incidents/" in link["url"]]
    assert incident == f"{URL}/incidents/${{__value.raw:percentencode}}"
    assert target_of(urlsplit(incident.removeprefix(URL)).path) == Target(
        PageKind.INCIDENT, "", "${__value.raw:percentencode}"
    )


def test_without_an_address_a_board_stays_as_it_is() -> None:
    boards = json.loads(json.dumps(all_boards()))
    assert with_pages("", boards) == boards
