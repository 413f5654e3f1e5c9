"""Rules are read as Prometheus reads them, and each alert can be judged or has a reason why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from exporters.backtest.rule_files import Judgement, RuleFile, names_in
from streaming.errors import ConfigurationError

GENERATED = sorted(Path("dashboards/generated").glob("*.yml"))
HARD = [
    'sum by (cluster) (rate(a_total{topic=~"x{2}[0-9]+"}[5m])) > on (cluster) group_left (rack) b offset 5m',
    "sum(c) by (cluster) / sum without (broker) (d) unless on () e == bool 1",
    "max_over_time((f > 3)[1h:15s]) and (g or h atan2 vector(1)) # not a_comment",
    'job:i:rate5m * Inf + count_values("version", j) - quantile(0.9, k) > NaN',
    "l @ start() + m @ 1609746000",
]


def selected(expression: Any) -> Iterator[str]:
    """The names that Prometheus' grammar finds."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression.name
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        inner = getattr(expression, name, None)
        if inner is not None:
            yield from selected(inner)
    for inner in getattr(expression, "args", None) or ():
        yield from selected(inner)


@pytest.mark.parametrize("expression", HARD)
def test_the_names_in_an_expression_are_those_of_prometheus_grammar(expression: str) -> None:
    assert set(names_in(expression)) == set(selected(promql_parser.parse(expression.partition(" #")[0])))


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_the_names_in_our_own_rules_are_those_of_prometheus_grammar(path: Path) -> None:
    rules = list(RuleFile.read(path).rules())
    assert rules
    for rule in rules:
        assert set(names_in(rule["expr"])) == set(selected(promql_parser.parse(rule["expr"])))


def judged(tmp_path: Path, *rules: dict[str, str]) -> Judgement:
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": list(rules)}]}))
    return Judgement([RuleFile.read(path)])


def test_of_conditions_those_of_the_job_are_judged(tmp_path: Path) -> None:
    metric = "kafka_replication_condition_since_seconds"
    judgement = judged(
        tmp_path,
        {"alert": "A", "expr": f'max by (cluster) ({metric}{{cluster="a", condition=~"broker_down|restart_loop"}})'},
        {"alert": "B", "expr": f'{metric}{{condition="under_min_isr"}} or {metric}{{condition="job_down"}}'},
        {"alert": "C", "expr": f'{metric}{{condition!="under_min_isr"}}'},
        {"alert": "D", "expr": metric},
        {"alert": "E", "expr": f'{metric}{{condition="disk_fills_up"}}'},
    )
    assert judgement.alerts == ["A", "E"]
    assert judgement.metrics == {metric}
    assert judgement.not_judged["B"] == "reads the condition job_down, whose past no table keeps"
    assert judgement.not_judged["C"] == judgement.not_judged["D"] == f"reads {metric}, whose past no table keeps"


def test_an_alert_is_judged_by_way_of_recording_rules_if_all_that_it_reads_has_a_past(tmp_path: Path) -> None:
    judgement = judged(
        tmp_path,
        {"record": "cluster:under", "expr": "kafka_replication_cluster_under_replicated_partitions"},
        {"record": "group:lag", "expr": "kafka_consumergroup_lag"},
        {"alert": "Under", "expr": "cluster:under > 0 or ALERTS{alertname='Under'}"},
        {"alert": "Lag", "expr": "group:lag > 0"},
        {"alert": "Up", "expr": "up == 0"},
        {"alert": "Both", "expr": "cluster:under > 0 and on (cluster) kafka_replication_source_age_seconds > 9"},
        {"alert": "Pattern", "expr": '{__name__=~"kafka_.*"} > 0'},
        {"alert": "AtNight", "expr": "cluster:under > 0 and on () hour() < 6"},
        {"alert": "Always", "expr": "vector(1)"},
        {"alert": "Stopped", "expr": "kafka_replication_broker_stop_offline_partitions > 0"},
    )
    assert judgement.alerts == ["Under"]
    assert judgement.metrics == {"kafka_replication_cluster_under_replicated_partitions"}
    assert judgement.not_judged == {
        "Lag": "reads kafka_consumergroup_lag, whose past no table keeps",
        "Up": "reads up, which isrwatch export does not expose",
        "Both": "reads kafka_replication_source_age_seconds, whose past no table keeps",
        "Pattern": "selects metrics by a pattern",
        "AtNight": "asks for the time of day or the date",
        "Always": "reads no metric",
        "Stopped": "reads kafka_replication_broker_stop_offline_partitions, which isrwatch export does not expose",
    }


def test_a_recording_rule_that_reads_itself_ends(tmp_path: Path) -> None:
    judgement = judged(
        tmp_path,
        {"record": "a:b", "expr": "a:b or kafka_replication_cluster_partitions"},
        {"alert": "Any", "expr": "a:b > 0"},
    )
    assert judgement.alerts == ["Any"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("groups: [", "cannot read the rules"),
        ("rules: []", "holds no rules; it must have groups, each with rules"),
        ("groups: [{name: a}]", "holds no rules"),
        ("[1]", "holds no rules"),
    ],
)
def test_a_file_without_rules_is_refused_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=sentence):
        RuleFile.read(path)
    with pytest.raises(ConfigurationError, match="cannot read the rules"):
        RuleFile.read(tmp_path / "missing.yml")


def test_a_prometheus_rule_of_kubernetes_is_read_as_well(tmp_path: Path) -> None:
    rule = {"alert": "A", "expr": "kafka_replication_cluster_offline_partitions > 0"}
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"kind": "PrometheusRule", "spec": {"groups": [{"name": "g", "rules": [rule]}]}}))
    assert Judgement([RuleFile.read(path)]).alerts == ["A"]
