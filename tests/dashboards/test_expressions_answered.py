"""Every expression of the boards and the rules in a real Prometheus: it has an answer, with its labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import product

import pytest

from dashboards.alerts import rule_file
from dashboards.render import as_yaml
from exporters.metrics.brokers import ISR_REMOVAL_CAUSES
from exporters.metrics.catalogue import CATALOGUE
from streaming.contracts.events import IncidentClass
from tests.dashboards.test_expressions import (
    AGENTS,
    EVERY_PACK,
    SIGNALS,
    Boards,
    concrete,
    of_annotations,
    of_panels,
    of_rules,
    of_variables,
)
from tests.plugins.local_http import serving_exposition, wait_until
from tests.plugins.prometheus import Prometheus, running_prometheus

pytestmark = pytest.mark.prometheus

VALUES = {
    "cluster": ["prod"],
    "topic": ["orders", "__consumer_offsets"],
    "partition": ["0", "1"],
    "broker": ["1", "2", "3"],
    "class": [kind.value for kind in IncidentClass],
    "cause": [cause.value for cause in ISR_REMOVAL_CAUSES],
    "channel": ["replication"],
    "source": ["metadata_log:collector-1"],
    "rack": ["r1"],
    "host": ["127.0.0.1"],
    "severity": ["critical"],
    "condition": ["offline_partitions", "at_min_isr"],
    "feature": ["metadata.version"],
    "primary_source": ["metadata_log", "poll"],
}


def unhealthy(counted: int) -> str:
    """Every metric of the catalogue, and of agents, where every flag is up and every counter has counted so far."""
    lines = []
    agents = ((each.full_name, each.labels) for each in SIGNALS if each.full_name in AGENTS)
    for name, own in (*((metric.name, metric.labels) for metric in CATALOGUE), *agents):
        value = counted if name.endswith("_total") else 1
        for values in product(*(VALUES.get(label, ["x"]) for label in own)):
            labels = ",".join(f'{label}="{value}"' for label, value in zip(own, values, strict=True))
            lines.append(f"{name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a server that has seen every counter count, and a page."""
    rules = [as_yaml(rule_file(EVERY_PACK)).replace("interval: 15s", "interval: 1s")]
    directory = tmp_path_factory.mktemp("prometheus")
    with (
        serving_exposition(unhealthy(0)) as exporter,
        running_prometheus(directory, {"isrwatch": exporter.address}, rules) as prometheus,
    ):
        wait_until(lambda: prometheus.query("kafka_replication_partition_leader"))
        exporter.text = unhealthy(9)
        for counter in ("cluster_isr_shrinks_total", "broker_isr_departures_total"):
            wait_until(partial(prometheus.query, f"increase(kafka_replication_{counter}[1m]) > 1"))
        wait_until(lambda: [one for one in prometheus.alerts("IsrwatchOfflinePartitions") if one["state"] == "firing"])
        yield prometheus


def test_prometheus_answers_every_expression_and_every_legend_has_its_labels(
    boards: Boards, answering: Prometheus
) -> None:
    for name, (expression, legend) in of_panels(boards).items():
        rows = answering.query(expression)
        assert rows, f"{name}: nothing for {expression}"
        for label in re.findall(r"\{\{(\w+)\}\}", legend):
            assert all(label in row["metric"] for row in rows), f"{name}: no {label}"
    for name, expression in (of_annotations(boards) | of_variables(boards)).items():
        found = answering.query(expression)
        assert bool(found) != (name == "Not monitored"), f"{name}: {found} for {expression}"  # data is fresh
    for expression in of_rules(as_yaml(rule_file(EVERY_PACK))).values():
        answering.query(expression)
    (critical,) = answering.alerts("IsrwatchOfflinePartitions")
    assert critical["annotations"]["summary"] == "x", "that of the incident"


def test_a_table_finds_its_keys_in_every_column(boards: Boards, answering: Prometheus) -> None:
    tables = [panel for board in boards.values() for panel in board["panels"] if panel["type"] == "table"]
    assert len(tables) > 20
    for panel in tables:
        (order,) = [one["options"]["indexByName"] for one in panel["transformations"] if one["id"] == "organize"]
        keys = {name for name in order if not name.startswith("Value")}
        columns = [answering.query(concrete(target["expr"])) for target in panel["targets"]]
        result_labels = [set().union(*(row["metric"] for row in rows)) for rows in columns]
        assert set().union(*result_labels) - {"cluster"} == keys - {"cluster"}, panel["title"]
