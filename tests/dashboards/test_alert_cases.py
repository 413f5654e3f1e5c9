"""Each alert fires with a value, and not just below it; at its boundary, without its series, after a counter was reset.

One call of promtool judges all of them: each alert with the recording rules alone, so that it is fast.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dashboards.alerts import AlertSettings, rule_file
from dashboards.alerts.rules import ALERTING, RECORDING
from tests.dashboards.alert_table import BLIND, ROWS

pytestmark = pytest.mark.prometheus

EVERY = (*ROWS, BLIND)
RULES = rule_file(AlertSettings(expected_clusters=("prod",)))
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in RULES["groups"][1]["rules"]}
ALWAYS_FIRES = "Watchdog"


def written(directory: Path, number: int, rules: dict[str, Any] = RULES) -> Path:
    """Write the rules and the tests of one row."""
    row = EVERY[number]
    recording, alerting = (group["rules"] for group in rules["groups"])
    (whole,) = (rule for rule in alerting if rule["alert"] == row.name)
    alert = {key: value for key, value in whole.items() if key != "annotations"}
    records = [rule for rule in recording if rule["record"] in alert["expr"]]
    groups = [{"name": RECORDING, "rules": records}, {"name": ALERTING, "rules": [alert]}]
    asked = directory / f"rules-{number}.yml"
    asked.write_text(json.dumps({"groups": [group for group in groups if group["rules"]]}))
    content = {"rule_files": [asked.name], "group_eval_order": [RECORDING, ALERTING], "tests": row.tests()}
    case = directory / f"case-{number}.yml"
    case.write_text(json.dumps({**content, "evaluation_interval": f"{row.step}s"}))
    return case


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Play every row; give what promtool says of each, "" if all is well."""
    directory = tmp_path_factory.mktemp("alerts")
    cases = [written(directory, number) for number in range(len(EVERY))]
    outcome = subprocess.run(
        ["promtool", "test", "rules", *map(str, cases)], capture_output=True, text=True, check=False
    )
    # Of an expression promtool prints the text, no name of its test: the text has the alert, and the name as a comment.
    failures = re.findall(
        r'expr: ".*?alertname=\\"(\w+)\\".*? # ([^"]+)", time: (\S+),\s+(exp: .*\s+got: .*)', outcome.stderr
    )
    assert (outcome.returncode == 0) == (not failures), outcome.stdout + outcome.stderr
    return {
        number: "\n".join(f"{test} at {at}: {what}" for name, test, at, what in failures if name == row.name)
        for number, row in enumerate(EVERY)
    }


@pytest.mark.parametrize("number", range(len(EVERY)), ids=[f"{row.name}-{number}" for number, row in enumerate(EVERY)])
def test_an_alert_fires_when_it_must_and_only_then(number: int, outcomes: dict[int, str]) -> None:
    assert not outcomes[number], outcomes[number]


def test_every_alert_has_a_row() -> None:
    assert {row.name for row in EVERY} | {ALWAYS_FIRES} == ALERTS.keys()


def test_severities_are_those_of_the_rows() -> None:
    assert {row.name: row.alert.split()[0] for row in EVERY} == {
        name: rule["labels"]["severity"] for name, rule in ALERTS.items() if name != ALWAYS_FIRES
    }


def test_a_row_that_expects_what_is_wrong_would_be_noticed(tmp_path: Path) -> None:
    (number,) = (number for number, row in enumerate(EVERY) if row.name == "KafkaDiskNearlyFull")
    case = written(tmp_path, number)
    rules = tmp_path / f"rules-{number}.yml"
    assert "< 0.15" in rules.read_text()
    for wrong in ("< 0.155", "< 0.135", "<= 0.15"):
        rules.write_text(rules.read_text().replace("< 0.15", wrong).replace("<= 0.155", wrong))
        outcome = subprocess.run(["promtool", "test", "rules", str(case)], capture_output=True, text=True, check=False)
        assert outcome.returncode != 0, wrong
        written(tmp_path, number)


ANNOUNCED = {
    "KafkaBrokerLost", "KafkaUnderReplicated", "KafkaBrokerDown", "KafkaBrokerStopped", "KafkaBrokerFencedThoughUp",
    "KafkaBrokerRestartLoop", "KafkaBrokerSlow", "KafkaIsrFlapping", "KafkaIsrShrink", "KafkaQuorumVoterBehind",
}  # fmt: skip
"""What planned work on the broker explains."""
OF_TOPICS = {
    "KafkaOfflinePartitions", "KafkaUnderMinIsr", "KafkaMorePartitionsUnavailable", "KafkaAvailabilityBurnsFast",
    "KafkaAvailabilityBurns", "KafkaGroupStuck", "KafkaGroupLagGrows", "KafkaGroupLosesRecords",
    "KafkaGroupNearRetention", "KafkaStoppedGroupLosesRecords",
}  # fmt: skip
"""What excluded topics have no part in."""


def stays_silent(directory: Path, number: int, rules: dict[str, Any], more: dict[str, str]) -> str:
    """Play the case that fires under other rules or with more series; give what promtool says if it fires still."""
    row = EVERY[number]
    case = written(directory, number, rules)
    content = json.loads(case.read_text())
    fires = content["tests"][0]
    fires["input_series"] = [each for each in fires["input_series"] if each["series"] not in more]
    fires["input_series"] += [{"series": series, "values": values} for series, values in more.items()]
    for test in fires["promql_expr_test"]:
        test["exp_samples"] = []
    case.write_text(json.dumps({**content, "tests": [fires]}))
    outcome = subprocess.run(["promtool", "test", "rules", str(case)], capture_output=True, text=True, check=False)
    return "" if outcome.returncode == 0 else row.name + outcome.stdout + outcome.stderr


def test_announced_work_explains_these_alerts_and_no_other(tmp_path: Path) -> None:
    assert {name for name, rule in ALERTS.items() if re.search(r"broker_maintenance\b", rule["expr"])} == ANNOUNCED
    for number, row in enumerate(EVERY):
        if row.name in ANNOUNCED:
            announced = f'kafka_replication_broker_maintenance{{cluster="prod", broker="{row.broker}"}}'
            assert not stays_silent(tmp_path, number, RULES, {announced: "1x20000"})


def test_topics_that_are_left_out_have_no_part_in_these_alerts_and_no_other(tmp_path: Path) -> None:
    excluding = rule_file(AlertSettings(excluded_topics="orders"))
    records, alerts = (group["rules"] for group in excluding["groups"])
    asks = [rule["record"] for rule in records if "topic!~" in rule["expr"]]
    excluded = {one["alert"] for one in alerts if any(text in one["expr"] for text in ("topic!~", *asks))}
    assert excluded == OF_TOPICS
    for number, row in enumerate(EVERY):
        if row.name in OF_TOPICS:
            assert not stays_silent(tmp_path, number, excluding, OF_ORDERS)


OF_ORDERS = {
    f'kafka_replication_topic_{name}{{cluster="prod", topic="orders"}}': values
    for name, values in (
        ("offline_partitions", "400x20000"),
        ("under_min_isr_partitions", "400x20000"),
        ("under_min_isr_seconds_total", "0+9000x20000"),
    )
}
"""All the trouble is that of one topic."""
