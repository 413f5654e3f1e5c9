"""Every expression of the dashboard and the rules.

It parses, it selects only what the exporter exposes, and a real Prometheus returns a result for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import promql_parser
import pytest
import yaml

from dashboards import signals
from dashboards.alerts import rule_file
from dashboards.boards.topics import SEEN
from dashboards.promql import PREFIX, Scope, Signal, SignalType, Unit
from dashboards.render import as_yaml
from dashboards.signals import clusters, partitions
from dashboards.signals.brokers import PLANNED_CAUSES
from dashboards.signals.derived import signal
from exporters.metrics.brokers import ISR_REMOVAL_CAUSES
from exporters.metrics.catalogue import CATALOGUE
from exporters.web.runbook import runbook
from streaming.alert_settings import AlertsSettings
from streaming.contracts.alerts import OPT_IN
from streaming.jobs.metrics import PREFIX as JOB_PREFIX
from streaming.jobs.metrics import QUERY
from streaming.settings import ExportSettings, Settings
from streaming.sources.broker_metrics import METRICS, PERCENTILES, SUMMED
from streaming.sources.collector.listener_watch import CERTIFICATE, LISTENER, PROPERTY, ConnectionMetrics
from streaming.sources.collector.metrics import SOURCE, CollectorMetrics
from streaming.sources.protocol.addresses import Peers

Boards = dict[str, dict[str, Any]]
COLLECTORS = {
    "isrwatch_collector_source_up": set(SOURCE),
    "isrwatch_collector_unseen_brokers": set(SOURCE),
    "isrwatch_collector_listener_certificate_expiry_timestamp_seconds": set(CERTIFICATE),
    "isrwatch_collector_listener_wrong_node": set(LISTENER),
    "isrwatch_collector_client_certificate_expiry_timestamp_seconds": set(PROPERTY),
}
"""Of the collector's own page: metric to labels."""
SIGNALS = [
    one
    for module in iter_modules(signals.__path__)
    for one in vars(import_module(f"{signals.__name__}.{module.name}")).values()
    if isinstance(one, Signal)
]
ADDED = "kafka_cluster"
"""The label that the scrape adds to the names of kafka_exporter, which have none of a cluster."""
OTHERS = {f"{JOB_PREFIX}query_up": set(QUERY), "up": {"job", "instance"}}
"""Of the job's own page, and Prometheus' own."""
CATALOGUED = {metric.name for metric in CATALOGUE}
AGENTS = {
    each.full_name: set(each.labels) for each in SIGNALS if each.prefix == "kafka_" and each.full_name not in CATALOGUED
}
EVERY_PACK = Settings(alerts=AlertsSettings(packs=OPT_IN))
"""Of the brokers' own agents."""
LABELS_OF = (
    {metric.name: set(metric.labels) for metric in CATALOGUE}
    | COLLECTORS
    | OTHERS
    | AGENTS
    # Prometheus' own: what fires, which boards mark.
    | {"ALERTS": {"alertname", "alertstate", "severity", "cluster"}}
)
SUBSTITUTES = {"$__rate_interval": "8s", "$__interval": "2s", "$__range_s": "60", "$__range": "1m",
               "${cluster:regex}": "prod", "${broker:regex}": ".+", "${topic:regex}": ".+", "$kind": ".+",
               "${group:regex}": ".+", "$objective": "99.9",
               SEEN: "1m:1s"}  # fmt: skip


def concrete(expression: str) -> str:
    """Substitute values for Grafana's variables."""
    for variable, value in SUBSTITUTES.items():
        expression = expression.replace(variable, value)
    return expression


def of_panels(boards: Boards) -> dict[str, tuple[str, str]]:
    """Give expression and legend of every query of every panel."""
    return {
        f"{name} {panel['title']}/{target['refId']}": (concrete(target["expr"]), target["legendFormat"])
        for name, board in boards.items()
        for panel in board["panels"]
        for target in panel.get("targets", [])
    }


def of_annotations(boards: Boards) -> dict[str, str]:
    marks = (one for board in boards.values() for one in board["annotations"]["list"])
    return {one["name"]: concrete(one["expr"]) for one in marks if "expr" in one}


def of_variables(boards: Boards) -> dict[str, str]:
    variables = (one for board in boards.values() for one in board["templating"]["list"])
    queries = (one["query"] for one in variables if one["type"] == "query")
    return {query: concrete(re.sub(r"label_values\((.*), \w+\)", r"\1", query)) for query in queries}


def of_rules(text: str) -> dict[str, str]:
    """Give the conditions, and the queries inside the templates of the annotations."""
    found = {}
    for rule in (rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]):
        found[rule["alert"]] = rule["expr"]
        for name, annotation in rule["annotations"].items():
            for query in re.findall(r"printf `([^`]*)`", annotation):
                found[f"{rule['alert']} {name}"] = query.replace("%q", '"prod"')
    return found


@pytest.fixture(scope="session")
def everything(boards: Boards) -> dict[str, str]:
    return {
        **{name: expression for name, (expression, _) in of_panels(boards).items()},
        **of_annotations(boards),
        **of_variables(boards),
        **of_rules(as_yaml(rule_file(EVERY_PACK))),
    }


def parts(node: Any, *, of_labels: bool = False) -> Iterator[Any]:
    """Walk through a parsed expression, or what gives the result its labels: the right side of and, unless does not."""
    yield node
    left_out = {"param"} if of_labels else set()
    if of_labels and str(getattr(node, "op", "")) in {"and", "unless"}:
        left_out.add("rhs")
    children = (getattr(node, name, None) for name in ("expr", "lhs", "rhs", "vector_selector", "param")
                if name not in left_out)  # fmt: skip
    for child in (*children, *getattr(node, "args", [])):
        if child is not None:
            yield from parts(child, of_labels=of_labels)


def selectors(expression: str) -> Iterator[Any]:
    return (part for part in parts(promql_parser.parse(expression)) if type(part).__name__ == "VectorSelector")


def test_every_expression_is_promql(everything: dict[str, str]) -> None:
    assert len(everything) > 50
    for name, expression in everything.items():
        assert list(selectors(expression)) or expression == "vector(1)", name


def test_every_metric_and_matched_label_is_in_the_exporters_catalogue(everything: dict[str, str]) -> None:
    for name, expression in everything.items():
        for selector in selectors(expression):
            assert selector.name in LABELS_OF, name
            matched = {matcher.name for matcher in selector.matchers.matchers}
            assert matched <= LABELS_OF[selector.name], name


def test_every_aggregation_keeps_only_labels_that_exist(everything: dict[str, str]) -> None:
    for name, expression in everything.items():
        for part in parts(promql_parser.parse(expression)):
            if type(part).__name__ == "AggregateExpr" and part.modifier is not None:
                made = {
                    call.args[1].val
                    for call in parts(part.expr)
                    if type(call).__name__ == "Call" and call.func.name == "label_replace"
                }
                available = [
                    LABELS_OF[one.name] | made | ({ADDED} if one.name.startswith("kafka_topic_") else set())
                    for one in parts(part.expr, of_labels=True)
                    if type(one).__name__ == "VectorSelector"
                ]
                assert all(set(part.modifier.labels) <= labels for labels in available), name


def test_what_is_asked_of_the_collectors_page_is_on_it() -> None:
    registry = CollectorMetrics([], "demo").registry
    registry.register(ConnectionMetrics(Settings(), dict, Peers(), dict))
    exposed = {metric.name for metric in registry.collect()}
    asked = [signal for signal in SIGNALS if signal.full_name not in {metric.name for metric in CATALOGUE}]
    assert {signal.full_name: set(signal.labels) for signal in asked} == COLLECTORS | OTHERS | AGENTS
    assert AGENTS.keys() <= METRICS | PERCENTILES | SUMMED.keys()
    assert exposed >= COLLECTORS.keys()


@pytest.fixture(scope="session")
def asked_for(files: dict[str, str]) -> set[str]:
    """Give every word of the boards and rules; the names of metrics are among them."""
    every_rule = as_yaml(rule_file(EVERY_PACK))
    return {word for text in (*files.values(), every_rule) for word in re.findall(r"\w+", text)}


def test_every_signal_of_the_exporter_is_used(asked_for: set[str]) -> None:
    own = {each.full_name for each in SIGNALS if each.prefix == PREFIX}
    assert len(own) > 100
    assert own - asked_for == set()


def test_counters_and_nothing_else_are_named_as_such() -> None:
    counters = {each.full_name for each in SIGNALS if each.kind is SignalType.COUNTER}
    assert counters == {each.full_name for each in SIGNALS if each.metric.endswith("_total")}


def test_a_signal_says_of_a_metric_what_the_catalogue_says() -> None:
    (metric,) = [metric for metric in CATALOGUE if metric.name == f"{PREFIX}cluster_unclean_elections_total"]
    derived = signal(metric.name)
    assert (derived.full_name, derived.labels, derived.meaning) == (metric.name, metric.labels, metric.help)
    assert (derived.kind, derived.unit) == (SignalType.COUNTER, Unit.COUNT)
    assert signal("kafka_replication_source_behind_bytes").unit is Unit.BYTES
    with pytest.raises(KeyError, match="kafka_replication_nothing"):
        signal("kafka_replication_nothing")


OF_THE_EXPORTER = {
    f"exporter_{name}"
    for name in (
        "table_version", "refresh_duration_seconds", "refresh_errors_total", "drop_in_names", "filter_info",
        "family_exposed", "http_requests_total", "http_request_duration_seconds_total", "http_requests_in_flight",
        "http_refused_connections_total",
    )
}  # fmt: skip
COUNTED_BY_TOPIC_OR_CLUSTER = {
    f"partition_{name}_total"
    for name in (
        "isr_shrinks", "isr_expands", "leader_changes", "unclean_elections", "missed_changes",
        "under_replicated_seconds", "under_min_isr_seconds", "offline_seconds", "unknown_seconds",
    )
}  # fmt: skip
ON_NO_BOARD = {
    *OF_THE_EXPORTER,
    *COUNTED_BY_TOPIC_OR_CLUSTER,
    "build_info",
    "cluster_elr_partitions", "partition_eligible_leader_replicas",  # replica_elr_member says who
    "cluster_at_min_isr_partitions", "partition_under_min_isr",  # counted by topic
    "broker_epoch", "broker_online_log_dirs", "broker_suspect_score",  # events, directories and incidents say it
    "topic_left_throttle_info", "broker_left_throttle_info",
    "partition_at_min_isr", "partition_last_known_leader", "partition_leader_epoch",
    "group_lag_seconds",  # group_lag_at_least_seconds is there during outages, too
    "group_losing_partitions",  # the condition group_losing follows from the same rows
    "log_directory_cordoned",  # isrwatch directories says it
    "log_directory_growth_bytes_per_second",  # until_full follows from it
}  # fmt: skip
"""Own metrics that are for queries of one's own."""


def test_every_other_metric_is_on_a_board_or_in_a_rule(files: dict[str, str]) -> None:
    every_rule = as_yaml(rule_file(EVERY_PACK))
    shown = set(re.findall(r"\bkafka_replication_\w+", " ".join((*files.values(), every_rule))))
    own = {metric.name for metric in CATALOGUE if metric.name.startswith(PREFIX)}
    assert {name.removeprefix(PREFIX) for name in own - shown} == ON_NO_BOARD


def test_planned_causes_are_causes_of_isr_removals_and_the_others_are_in_the_runbook() -> None:
    causes = {cause.value for cause in ISR_REMOVAL_CAUSES}
    assert set(PLANNED_CAUSES) < causes
    section = runbook().sections["IsrwatchEvents"]
    assert [cause for cause in sorted(causes - set(PLANNED_CAUSES)) if f"`{cause}`" not in section] == []


# Engines that evaluate the rules: Prometheus 2.42, vmalert, Thanos, Mimir, Grafana. Tests run the first two only.


FUNCTIONS = {
    "absent",
    "group",
    "increase",
    "label_replace",
    "last_over_time",
    "max_over_time",
    "rate",
    "time",
    "vector",
}
"""Of Prometheus 2.42, and of every one of these engines."""
TEMPLATES = {"first", "humanizeDuration", "label", "match", "printf", "query", "reReplaceAll", "urlquery"}
"""Functions of templates that Prometheus 2.42 and vmalert have; Grafana lacks ``query``, ``first`` and ``label``."""
KEYWORDS = {"if", "else", "end", "with", "eq", "gt"}
EVERY_RULE = [rule for group in rule_file(replace(EVERY_PACK, export=ExportSettings(url="https://x")))["groups"]
              for rule in group["rules"]]  # fmt: skip


def test_no_rule_reads_what_fires_or_the_result_of_another_rule() -> None:
    names = {rule["alert"] for rule in EVERY_RULE}
    assert [rule["alert"] for rule in EVERY_RULE if "record" in rule] == []
    for rule in EVERY_RULE:
        text = f"{rule['expr']} {rule['annotations']}"
        assert not re.search(r"\bALERTS(_FOR_STATE)?\b|\b\w+:\w+:\w+\b", text), rule["alert"]
        assert not {selector.name for selector in selectors(rule["expr"])} & names


def test_rules_have_functions_that_every_engine_has() -> None:
    for rule in EVERY_RULE:
        calls = {part.func.name for part in parts(promql_parser.parse(rule["expr"])) if type(part).__name__ == "Call"}
        assert calls <= FUNCTIONS, rule["alert"]
        assert set(rule) <= {"alert", "expr", "for", "keep_firing_for", "labels", "annotations"}
        assert not re.search(r"\[[^\]]*:[^\]]*\]|@|\bkeep_metric_names\b", rule["expr"]), f"{rule['alert']}: a subquery"


def test_templates_have_functions_that_prometheus_and_vmalert_have() -> None:
    for rule in EVERY_RULE:
        blocks = re.findall(r"\{\{(.*?)\}\}(?!`)", re.sub(r"`[^`]*`", "", str(rule["annotations"])))
        words = {
            word for block in blocks for word in re.findall(r"(?<![\w.$\"])[a-zA-Z]\w*", re.sub(r'"[^"]*"', "", block))
        }
        assert words <= TEMPLATES | KEYWORDS, rule["alert"]
        assert "$labels" not in str(rule.get("labels")), "a label that is a template differs between engines"


def test_a_gauge_has_no_rate() -> None:
    with pytest.raises(AssertionError, match="cluster_offline_partitions is not a counter"):
        clusters.OFFLINE.increase("5m")


def test_a_scope_matches_only_labels_that_a_signal_has() -> None:
    scope = Scope({"cluster": 'cluster="a"', "topic": 'topic="b"'})
    assert clusters.OFFLINE.series(scope) == 'kafka_replication_cluster_offline_partitions{cluster="a"}'
    assert partitions.OFFLINE.series(scope, 'partition="0"') == (
        'kafka_replication_partition_offline{cluster="a", topic="b", partition="0"}'
    )
