"""What is recorded is right, by promtool, and is what the alerts ask."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dashboards.alerts import AlertSettings, rule_file

pytestmark = pytest.mark.prometheus

PROD = 'cluster="prod"'
EXCLUDING = AlertSettings(excluded_topics="junk-.*")
SERIES = {
    # Steps of a minute. Partition 1 was offline longest, of two exporters.
    f'partition_offline_seconds_total{{{PROD}, topic="orders", partition="0"}}': "0+6x60",
    f'partition_offline_seconds_total{{{PROD}, topic="orders", partition="1", instance="a"}}': "0+12x60",
    f'partition_offline_seconds_total{{{PROD}, topic="orders", partition="1", instance="b"}}': "0+12x60",
    f'partition_offline_seconds_total{{{PROD}, topic="junk-1", partition="0"}}': "0+60x60",
    # Of 100 partitions 60 s offline and 30 s under min ISR in a minute: a hundredth at least.
    f"cluster_offline_seconds_total{{{PROD}}}": "0+60x60",
    f"cluster_under_min_isr_seconds_total{{{PROD}}}": "0+30x60",
    f'topic_under_min_isr_seconds_total{{{PROD}, topic="orders"}}': "0+12x60",
    f'topic_under_min_isr_seconds_total{{{PROD}, topic="junk-1"}}': "0+18x60",
    f"cluster_partitions{{{PROD}}}": "100x60",
    f"cluster_offline_partitions{{{PROD}}}": "5x60",
    f'topic_offline_partitions{{{PROD}, topic="orders"}}': "2x60",
    f'topic_offline_partitions{{{PROD}, topic="junk-1"}}': "3x60",
}
OFFLINE = "cluster:kafka_replication_partition_offline_seconds:max_increase5m"
SHARE = "cluster:kafka_replication_unavailable_time:ratio_rate30m"
COUNT = "cluster:kafka_replication_offline_partitions:sum"


def recorded(directory: Path, settings: AlertSettings, values: dict[str, float]) -> str:
    """Give what promtool says against these values after 50 minutes."""
    (directory / "rules.yml").write_text(json.dumps({"groups": rule_file(settings)["groups"][:1]}))
    test = {
        "interval": "1m",
        "input_series": [{"series": f"kafka_replication_{key}", "values": text} for key, text in SERIES.items()],
        "promql_expr_test": [
            {
                "expr": f"round({name}, 0.0001)",
                "eval_time": "50m",
                "exp_samples": [{"labels": "{" + PROD + "}", "value": value}],
            }
            for name, value in values.items()
        ],
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (directory / "case.yml").write_text(json.dumps(document))
    command = ["promtool", "test", "rules", str(directory / "case.yml")]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if outcome.returncode == 0 else outcome.stdout + outcome.stderr


def test_the_longest_of_all_partitions_and_the_larger_of_both_times_are_recorded(tmp_path: Path) -> None:
    assert not recorded(tmp_path, AlertSettings(), {OFFLINE: 300, SHARE: 0.01})


def test_topics_that_are_left_out_are_in_no_record(tmp_path: Path) -> None:
    assert not recorded(tmp_path, EXCLUDING, {OFFLINE: 60, SHARE: 0.002, COUNT: 2})


def test_a_wrong_record_would_be_noticed(tmp_path: Path) -> None:
    assert recorded(tmp_path, AlertSettings(), {OFFLINE: 301})


@pytest.mark.parametrize("settings", [AlertSettings(), EXCLUDING], ids=["all topics", "some left out"])
def test_names_are_those_of_prometheus_and_each_record_is_asked(settings: AlertSettings) -> None:
    recording, alerting = (group["rules"] for group in rule_file(settings)["groups"])
    asked = str(alerting)
    names = [rule["record"] for rule in recording]
    assert all(re.fullmatch(r"cluster:kafka_replication_\w+:\w+", name) for name in names)
    assert [name for name in names if not re.search(rf"{name}\b", asked)] == []
    unrecorded: set[Any] = set(re.findall(r"cluster:\w+:\w+", asked)) - set(names)
    assert unrecorded == set()
