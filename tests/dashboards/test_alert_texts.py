"""What a notification says: the sentence of the incident, or that of the alert, in 200 characters; its links."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from typing import Any

import pytest
import typer

from dashboards.alerts import rule_file
from dashboards.alerts.texts import PLAIN, shortened
from dashboards.render import without_query
from exporters.metrics.clusters import INCIDENT_METRICS
from exporters.read_model.snapshot import ClusterIncidents, ClusterSnapshot
from exporters.web.runbook import LABELS, runbook
from streaming.alert_settings import AlertsSettings
from streaming.commands import load
from streaming.contracts.alerts import ALERTS, OPT_IN
from streaming.contracts.conditions import Condition, Spell
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.state import ClusterState
from streaming.settings import ExportSettings, Settings

URL = "https://isrwatch.example"
RULES = rule_file(Settings(alerts=AlertsSettings(packs=OPT_IN), export=ExportSettings(url=URL)))
BY_NAME: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
LONG = {"cluster": "c" * 40, "subject": "1001:/var/lib/kafka-data-0", "topic": "t" * 40, "group": "g" * 40,
        "instance": "10.20.30.40:9310", "job": "isrwatch-collector", "source": "metadata_log:collector-1.example",
        "query": "replication", "cause": "last_known_leader", "broker": "1001", "class": "unsafe_reassignment",
        "short_id": "c" * 40 + "-1000", "role": "controller", "node": "1001"}  # fmt: skip
WHOLE_IF = re.compile(r"\{\{ (?:if|with) [^}]*\}\}([^{]*(?:\{\{ (?:\$labels\.\w+|\.)[^}]*\}\}[^{]*)*)"
                      r"(?:\{\{ else \}\}([^{]*))?\{\{ end \}\}")  # fmt: skip


def plain(text: str) -> str:
    """Take what a summary says where there is no incident, with its labels as they are."""
    return without_query(text).replace(f" | {PLAIN}", "").replace(f" | {shortened()}", "")


def longest(text: str) -> str:
    """Fill a template in with long labels, and take the longest of what it may say."""
    text = re.sub(
        r"\{\{ \$labels\.(\w+)(?: \| reReplaceAll `([^`]+)` `` )? ?\}\}",
        lambda label: re.sub(label[2], "", LONG[label[1]]) if label[2] else LONG[label[1]],
        text,
    )
    text = text.replace("{{ $value | humanizeDuration }}", "13d 23h 59m 59s").replace("{{ . }}", LONG["cluster"])
    choices = [max(one[1], one[2] or "", key=len) for one in WHOLE_IF.finditer(text)]
    kept = max(choices, key=len, default="")
    if len(choices) <= 2:
        return WHOLE_IF.sub(lambda one: max(one[1], one[2] or "", key=len), text)
    return WHOLE_IF.sub("", text) + kept


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_of_a_cluster_says_whether_its_brokers_are_polled(name: str) -> None:
    annotations = BY_NAME[name]["annotations"]
    said = annotations.get("sureness", "")
    assert bool(said) is ("cluster=" in annotations["runbook_url"])
    assert not said or re.search(
        r'cluster=%q, primary_source="poll"}` \$labels\.cluster \| query }}the brokers are polled', said
    )
    assert not said or without_query(said) == "isrwatch incidents says of each cause whether it is proven"


@pytest.mark.parametrize("name", ALERTS)
def test_a_summary_is_a_sentence_of_at_most_200_characters(name: str) -> None:
    said = longest(plain(BY_NAME[name]["annotations"]["summary"]))
    assert "{{" not in said
    assert len(said) <= 200, said


@pytest.mark.parametrize("name", [name for name in ALERTS if ALERTS[name].severity != "info"])
def test_a_summary_names_the_cluster_and_says_what_to_do_first(name: str) -> None:
    summary = plain(BY_NAME[name]["annotations"]["summary"])
    assert "First: " in summary
    assert "$labels.cluster" in summary or name == "IsrwatchTrafficStopped"


# The sentence of an incident.


def test_the_sentence_of_an_incident_is_shown_whole() -> None:
    too_long = re.findall("`([^`]*)`", shortened(200))[0]
    assert re.search(too_long, "x" * 200) is None, "200 characters are no more than there may be"
    assert re.search(too_long, "x" * 201) is not None


def described(row: dict[str, Any], *spells: Spell, parts: tuple[dict[str, Any], ...] = ()) -> str:
    """Give the summary that the exporter exposes of an open incident."""
    (info,) = (metric for metric in INCIDENT_METRICS if metric.name == "kafka_replication_incident_info")
    incidents = ClusterIncidents(open=(row,), over={}, parts={row["incident_id"]: parts})
    state = ClusterState(cluster_id=ClusterId("c"), cluster="prod")
    ((labels, _),) = info.samples(ClusterSnapshot(cluster=state, incidents=incidents, conditions=spells))
    return labels[-1]


def spell(condition: Condition, short_id: str) -> Spell:
    return Spell("id", ClusterId("c"), "prod", condition, "", Micros(1), Micros(1), None, None,
                 "x", short_id, 1, (), 0, 1, None)  # fmt: skip


def test_the_sentence_of_an_incident_names_who_what_it_means_and_what_to_do_first() -> None:
    row = {"short_id": "prod-17", "incident_id": "x", "consequence": "no write was refused", "next_step": "start it"}
    facts = "broker 3 was lost (announced: disk; and more)"
    row["summary"] = f"{facts}: up to 2 partitions under-replicated; no write was refused; start it"
    assert described(row) == f"prod-17: {facts}: no write was refused. First: start it"


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (Condition.OFFLINE, "partitions are offline"),
        (Condition.OFFLINE_PLANNED, "partitions are offline"),
        (Condition.UNDER_MIN_ISR, "partitions refuse writes"),
        (Condition.UNDER_MIN_ISR_PLANNED, "partitions refuse writes"),
        (Condition.UNCLEAN_ELECTION, "records may be lost"),
    ],
)
def test_harm_that_another_incident_did_under_its_name_is_in_its_sentence(condition: Condition, said: str) -> None:
    row = {"short_id": "prod-17", "incident_id": "x", "consequence": "no write was refused", "next_step": "start it"}
    row["summary"] = "broker 3 was lost: 1 partition under-replicated; no write was refused; start it"
    assert described(row, spell(condition, "prod-17")) == f"prod-17: broker 3 was lost: {said}. First: start it"
    assert said not in described(row, spell(condition, "prod-18"))
    merged = {"short_id": "prod-16", "incident_id": "y"}
    assert said in described(row, spell(condition, "prod-16"), parts=(merged,))


# Commands and links.


@pytest.mark.parametrize("name", ALERTS)
def test_the_command_of_an_alert_can_be_run(name: str) -> None:
    command = re.sub(r"\{\{ \$labels\.\w+ .*? \}\}", "my 7", BY_NAME[name]["annotations"]["command"])
    assert ("my 7" in shlex.split(command)) == ("my 7" in command), "a name with a space is one argument"
    program, subcommand, *arguments = shlex.split(command)
    if program == "isrwatch":
        context = load(subcommand).make_context(subcommand, list(arguments), resilient_parsing=False)
        with suppress(typer.Exit):
            context.close()
    else:
        assert (program, subcommand) == ("amtool", "alert")


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_links_to_its_section_and_fills_it_in_with_its_own_labels(name: str) -> None:
    link = BY_NAME[name]["annotations"]["runbook_url"]
    section, _, parameters = link.removeprefix(f"{URL}/runbook/").partition("?")
    assert section == ALERTS[name].section
    given = set(re.findall(r"(\w+)=\{\{", parameters))
    assert section in runbook().sections
    labels = set(re.findall(r"\$labels\.(\w+)", str(BY_NAME[name]["annotations"]["summary"]))) | {"subject"}
    assert set(re.findall(r"\$labels\.(\w+)", parameters)) <= labels
    assert given <= set(LABELS)


def test_the_voter_that_is_behind_is_filled_in() -> None:
    assert "broker={{ $labels.subject" in BY_NAME["IsrwatchQuorumVoterBehind"]["annotations"]["runbook_url"]


def test_without_an_address_alerts_have_no_link() -> None:
    assert [rule for group in rule_file()["groups"] for rule in group["rules"] if "_url" in str(rule)] == []
