"""Each earlier alert has its section in their runbook; the commands in it, and in the alerts, can be run."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path

import pytest
import typer

from dashboards.alerts import AlertSettings, rule_file
from streaming.commands import load

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "exporters" / "web" / "runbook_earlier.md").read_text()
SECTIONS = {entry.splitlines()[0]: entry for entry in RUNBOOK.split("\n## ")[1:]}
URL = "https://isrwatch.example"
RULES = rule_file(AlertSettings(expected_clusters=("prod",), url=URL))["groups"][1]["rules"]
PARTS = ("Severity:", "Meaning.", "Impact.", "Diagnosis.", "Mitigation.", "What is normal.")
RUNS = {rule["alert"]: rule["annotations"]["description"].rpartition(" Run: ")[2] for rule in RULES}
TEMPLATE = re.compile(r"\{\{ \$labels\.\w+ \}\}")
COMMANDS = sorted(
    {
        match.replace("\n", " ").replace("--broker N", "--broker 7")
        for match in re.findall(r"`isrwatch ([a-z]+ ?[^`]*)`", RUNBOOK)
    }
    | {TEMPLATE.sub("7", run).removeprefix("isrwatch ") for run in RUNS.values() if run.startswith("isrwatch ")}
)


@pytest.mark.parametrize("name", [rule["alert"] for rule in RULES])
def test_an_alert_has_a_section_with_every_part_and_a_severity_that_is_its_own(name: str) -> None:
    section = SECTIONS[name]
    assert [part for part in PARTS if f"**{part}**" not in section] == []
    (severity,) = [rule["labels"]["severity"] for rule in RULES if rule["alert"] == name]
    assert re.search(rf"\*\*Severity:\*\* {severity}\b", section)
    assert "`" in section.split("**Diagnosis.**")[1], "what to look at is a command or a panel"


def test_sections_are_in_the_order_of_the_rules_which_link_to_them() -> None:
    assert list(SECTIONS) == [rule["alert"] for rule in RULES]
    links = {rule["annotations"]["runbook_url"].partition("?")[0] for rule in RULES}
    assert links == {f"{URL}/runbook/{heading}" for heading in SECTIONS}


def test_a_link_passes_the_labels_of_its_alert_on_and_none_that_it_lacks() -> None:
    links = {rule["alert"]: rule["annotations"]["runbook_url"].partition("?")[2] for rule in RULES}
    cluster, broker = ("cluster={{ $labels.cluster | urlquery }}", "broker={{ $labels.broker | urlquery }}")
    assert links["KafkaUnderMinIsr"] == cluster
    assert links["KafkaBrokerDown"] == f"{cluster}&{broker}"
    assert links["KafkaGroupStuck"] == f"{cluster}&group={{{{ $labels.group | urlquery }}}}"
    assert not links["Watchdog"]


def test_the_table_on_top_has_every_alert_with_its_severity_its_time_and_one_line() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| (\w+) \| ([\w ]+) \| (.+) \|$", RUNBOOK, re.MULTILINE)
    assert [row[:4] for row in rows] == [
        (rule["alert"], rule["alert"].lower(), rule["labels"]["severity"], rule.get("for", "at once")) for rule in RULES
    ]
    assert [row for row in rows if re.search(r"\{\{|\}\}|\$|  ", row[4]) or not row[4][0].isalpha()] == []
    assert "Broker BROKER is lost, and partitions depend on the rest" in rows[5]
    assert RUNBOOK.index(rows[-1][0]) < RUNBOOK.index("\n## ")


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_can_be_parsed(line: str) -> None:
    name, *arguments = shlex.split(line)
    command = load(name)
    assert command is not None
    with suppress(typer.Exit), command.make_context(name, arguments) as context:  # --help exits
        assert context.command is command


KAFKA_COMMANDS = {
    "KafkaOfflinePartitions": ["kafka-leader-election.sh", "kafka-topics.sh"],
    "KafkaUncleanElection": ["kafka-dump-log.sh", "kafka-configs.sh"],
    "KafkaUnderMinIsr": ["kafka-topics.sh"],
    "KafkaBrokerLost": ["kafka-server-start.sh", "kafka-reassign-partitions.sh"],
    "KafkaBrokerStopped": ["kafka-reassign-partitions.sh", "kafka-cluster.sh"],
    "KafkaReassignmentStuck": ["kafka-reassign-partitions.sh"],
    "KafkaPreferredLeaderImbalance": ["kafka-leader-election.sh"],
    "KafkaHangingTransaction": ["kafka-transactions.sh"],
}


@pytest.mark.parametrize("name", KAFKA_COMMANDS)
def test_a_section_has_the_commands_of_kafka_that_help(name: str) -> None:
    given = SECTIONS[name].split("**Diagnosis.**")[1]
    assert [each for each in KAFKA_COMMANDS[name] if not re.search(rf"`{re.escape(each)}[\s`]", given)] == []
