"""The rules as promtool sees them: what fires when, with which labels, through which gap, and when it is over."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from dashboards.alerts import rule_file
from dashboards.render import as_yaml
from dashboards.signals.clusters import CONDITION as SINCE
from streaming.contracts.alerts import ALERTS
from streaming.contracts.conditions import OF_BROKERS, Condition
from tests.dashboards.promtool import only, played, promtool
from tests.dashboards.test_alert_configuration import RULES, configured, kept, rules_of, waits

pytestmark = pytest.mark.prometheus

OWN = {"IsrwatchBlind", "IsrwatchDegraded"}
OF_CONDITIONS = [
    (name, condition) for name, alert in ALERTS.items() for condition in (alert.conditions if name not in OWN else ())
]
BEGIN = 10


def raised(condition: str, exporter: str = "a", **labels: str) -> str:
    every = {"cluster": "prod", "condition": condition, "instance": exporter, "job": "isrwatch", **labels}
    labelled = ", ".join(f'{name}="{value}"' for name, value in every.items())
    return f"{SINCE.full_name}{{{labelled}}}"


def test_promtool_finds_no_fault_with_the_rules(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(files["alerts.yml"])
    outcome = promtool("check", "rules", "--lint=all", "--lint-fatal", tmp_path / "alerts.yml")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize(("name", "condition"), OF_CONDITIONS)
def test_a_condition_fires_with_its_own_labels_through_the_gap_of_an_exporter(
    name: str, condition: Condition, tmp_path: Path
) -> None:
    subject = {"subject": "3"} if condition in OF_BROKERS else {}
    labels = {"severity": "critical", "short_id": "prod-17", **subject}
    after, long = waits(name), kept(name)
    fires, gap = BEGIN + after, 4
    again = fires + 5
    over = again + gap + 5
    # Two exporters at first; then none; then another one, on another machine.
    series = {
        raised(condition, "a", **labels): f"_x{BEGIN} 7x{after + 4} stale",
        raised(condition, "b", **labels): f"_x{BEGIN} 8x{after + 3} stale",
        raised(condition, "c", **labels): f"_x{again + gap} 9x4 stale",
    }
    alert = ", ".join(
        f'{label}="{value}"'
        for label, value in {"alertname": name, "cluster": "prod", "condition": condition, **labels}.items()
    )
    played(
        tmp_path,
        only(RULES, name),
        series,
        {
            fires - 1: set(),
            **{minute: {alert} for minute in (fires, again, again + gap - 1, again + gap + 1, over + long - 2)},
            over + long + 1: set(),
        },
    )


def test_a_planned_outage_is_a_warning_of_the_same_alert(tmp_path: Path) -> None:
    series = {raised("offline_partitions_planned", severity="warning"): "7x10"}
    alert = 'alertname="IsrwatchOfflinePartitions", cluster="prod", condition="offline_partitions_planned"'
    played(tmp_path, only(RULES, "IsrwatchOfflinePartitions"), series, {5: {f'{alert}, severity="warning"'}})


# Blindness.


BLIND = 'alertname="IsrwatchBlind", severity="critical"'
FRESH = 'kafka_replication_cluster_partitions{{cluster="{}", instance="a"}}'
INFO = 'kafka_replication_cluster_info{{cluster="{}", cluster_id="{}", instance="a"}}'


def blind(cluster: str) -> str:
    return f'{BLIND}, cluster="{cluster}"'


def test_a_dead_job_is_one_alert_however_many_clusters_are_behind_it(tmp_path: Path) -> None:
    clusters = [f"c{number}" for number in range(40)]
    series = {FRESH.format(name): "6x10 stale" for name in clusters}
    series |= {INFO.format(name, name): "1x90" for name in clusters}
    series |= {raised("job_down", cluster="", severity="critical"): "_x12 7x78"}
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, {24: set(), 28: {BLIND}, 80: {BLIND}})


def test_a_dead_exporter_or_an_empty_prometheus_is_one_alert(tmp_path: Path) -> None:
    series = {FRESH.format(name): "6x10 stale" for name in ("prod", "edge")}
    series |= {INFO.format(name, name): "1x10 stale" for name in ("prod", "edge")}
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, {24: set(), 28: {BLIND}, 3000: {BLIND}})


def test_an_upgrade_that_takes_some_minutes_wakes_nobody(tmp_path: Path) -> None:
    series = {
        FRESH.format("prod"): "6x10 _x1 stale _x6 6x40",
        INFO.format("prod", "p"): "1x16 stale _x2 1x40",
        raised("job_down", cluster="", severity="critical"): "_x11 7x3 stale",
    }
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, {minute: set() for minute in range(40)})


def test_a_collector_that_lost_the_controllers_for_748_seconds_wakes_nobody(tmp_path: Path) -> None:
    series = {
        FRESH.format("prod"): "6x10 stale _x12 6x40",
        INFO.format("prod", "p"): "1x60",
        raised("data_stale", cluster="prod", severity="critical"): "_x10 7x12 stale",
    }
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, {minute: set() for minute in range(50)})


def test_one_stale_cluster_next_to_fresh_ones_is_named(tmp_path: Path) -> None:
    series = {
        FRESH.format("prod"): "6x60",
        FRESH.format("edge"): "6x10 stale",
        INFO.format("prod", "p"): "1x60",
        INFO.format("edge", "e"): "1x60",
        raised("data_stale", cluster="edge", severity="critical"): "_x11 7x30 stale",
    }
    played(
        tmp_path, only(RULES, "IsrwatchBlind"), series, {25: set(), 28: {blind("edge")}, 55: {blind("edge")}, 60: set()}
    )


def test_blindness_that_turns_into_another_one_never_ends_in_between(tmp_path: Path) -> None:
    series = {
        FRESH.format("prod"): "6x40 stale",
        INFO.format("prod", "p"): "1x40 stale",
        raised("data_stale", cluster="edge", severity="critical"): "_x5 7x35 stale",
    }
    firing = {39: {blind("edge")}, 54: {blind("edge")}, 58: {BLIND}}
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, firing)


def test_one_of_two_exporters_that_dies_leaves_its_clusters_blind_and_a_rename_does_not(tmp_path: Path) -> None:
    series = {
        FRESH.format("prod"): "6x60",
        INFO.format("prod", "p"): "1x60",
        INFO.format("edge", "e"): "1x10 stale",
        INFO.format("old", "o"): "1x10 stale",
        INFO.format("new", "o"): "_x11 1x50",
    }
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, {24: set(), 28: {blind("edge")}})


def test_a_kafka_cluster_that_another_one_replaces_behind_its_name_is_not_missed(tmp_path: Path) -> None:
    old, new = "oldoldoldoldoldoldoldo", "new-new_new-new_new-ne"
    series = {
        FRESH.format("prod"): "6x60",
        INFO.format("prod", old): "1x10 stale",
        INFO.format(f"prod ({old})", old): "_x11 1 stale",  # while both are observed
        INFO.format(f"prod ({new})", new): "_x11 1 stale",
        INFO.format("prod", new): "_x12 1x50",
        INFO.format("prod (eu)", "e"): "1x10 stale",
    }
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, {24: set(), 28: {blind("prod (eu)")}})


def test_a_cluster_that_is_renamed_out_of_those_with_alerts_is_not_missed(tmp_path: Path) -> None:
    series = {
        FRESH.format("prod"): "6x60",
        INFO.format("edge", "e"): "1x10 stale",
        INFO.format("test-edge", "e"): "_x11 1x50",
    }
    rules = rule_file(configured(clusters=("!test-*",)))
    played(tmp_path, only(rules, "IsrwatchBlind"), series, {28: set()})


# Parts of isrwatch.


DEGRADED = 'alertname="IsrwatchDegraded", severity="warning"'


@pytest.mark.parametrize(
    ("series", "values", "labels"),
    [
        (raised("samples_stale", severity="warning"), "7x40", 'condition="samples_stale", cluster="prod"'),
        (raised("table_unreadable", cluster="", subject="incidents"), "7x40",
         'condition="table_unreadable", subject="incidents"'),
        ('isrwatch_collector_source_up{cluster="prod", source="quorum:c1"}', "0x40",
         'condition="source_refused", cluster="prod", source="quorum:c1"'),
        ('isrwatch_collector_unseen_brokers{cluster="prod", source="samples:c1"}', "2x40",
         'condition="brokers_unseen", cluster="prod", source="samples:c1"'),
        ('isrwatch_collector_listener_wrong_node{cluster="prod", role="broker", node="1", address="b:9"}', "1x40",
         'condition="wrong_node", address="b:9", cluster="prod", node="1", role="broker"'),
        ('isrwatch_job_query_up{query="incidents"}', "0x40", 'condition="query_down", query="incidents"'),
        ('up{job="isrwatch-job", instance="j:1"}', "0x40",
         'condition="program_down", job="isrwatch-job", instance="j:1"'),
        ('kafka_replication_quarantined_total{cluster="prod", channel="replication", source="s"}', "0x10 1x30",
         'condition="records_quarantined", cluster="prod"'),
    ],
)  # fmt: skip
def test_a_part_that_fails_is_a_warning_that_names_it(series: str, values: str, labels: str, tmp_path: Path) -> None:
    alert = f"{DEGRADED}, {labels}"
    played(tmp_path, only(RULES, "IsrwatchDegraded"), {series: values}, {13: set(), 27: {alert}})
    played(tmp_path, only(RULES, "IsrwatchDegraded"), {series: "1x40"} if "up" in series else {}, {30: set()})


@pytest.mark.parametrize(("source", "fires"), [("metadata_log", 1), ("poll", 0)])
def test_changes_that_polling_misses_by_its_nature_are_no_failure(source: str, fires: int, tmp_path: Path) -> None:
    series = {
        'kafka_replication_cluster_missed_changes_total{cluster="prod"}': "0x5 2x40",
        f'kafka_replication_cluster_info{{cluster="prod", cluster_id="p", primary_source="{source}"}}': "1x45",
    }
    alert = f'{DEGRADED}, condition="changes_missed", cluster="prod"'
    played(tmp_path, only(RULES, "IsrwatchDegraded"), series, {18: set(), 25: {alert} if fires else set()})


DAY = 86_400
CERTIFICATE = (
    'isrwatch_collector_listener_certificate_expiry_timestamp_seconds{cluster="prod", role="broker", node="1"}'
)
OTHER_CERTIFICATE = 'isrwatch_collector_client_certificate_expiry_timestamp_seconds{cluster="prod", property="p"}'


def test_a_certificate_warns_and_when_days_are_left_a_critical_alert_is_added(tmp_path: Path) -> None:
    expires = {step: f'alertname="IsrwatchCertificateExpires", cluster="prod", severity="{step}"'
               for step in ("warning", "critical")}  # fmt: skip
    both = set(expires.values())
    # An hour between two scrapes; the collector is restarted, and the certificate renewed at last.
    series = {CERTIFICATE: f"{20 * DAY}x440 stale {100 * DAY}x60", OTHER_CERTIFICATE: f"{90 * DAY}x500"}
    hours = {5 * 24: set(), 7 * 24: {expires["warning"]}, 16 * 24: {expires["warning"]}, 18 * 24: both, 441: both,
             470: set()}  # fmt: skip
    firing = {60 * hour: alerts for hour, alerts in hours.items()}
    played(tmp_path, only(RULES, "IsrwatchCertificateExpires"), series, firing, minutes=60)


def test_the_watchdog_always_fires_under_a_name_of_its_own(tmp_path: Path) -> None:
    alert = 'alertname="IsrwatchWatchdog", severity="info"'
    played(tmp_path, only(RULES, "IsrwatchWatchdog"), {}, {0: {alert}, 60: {alert}})


# What the configuration changes.


def test_clusters_topics_and_groups_that_are_left_out_have_no_alert(tmp_path: Path) -> None:
    settings = configured(clusters=("!test-*", "!it's"), groups=("!console-*",), packs=("groups",))
    rules = rule_file(settings)
    for rule in rules_of(settings).values():
        if rule["alert"] != "IsrwatchWatchdog":
            assert 'cluster!~"test\\\\-.*|it\'s"' in rule["expr"], rule["alert"]
    series = {raised("offline_partitions", cluster=name, severity="critical"): "7x20" for name in ("test-1", "prod")}
    alert = 'alertname="IsrwatchOfflinePartitions", cluster="prod", condition="offline_partitions", severity="critical"'
    played(tmp_path, only(rules, "IsrwatchOfflinePartitions"), series, {10: {alert}})


# The sentence of an incident.


SENTENCE = "prod-17: broker 3 was lost: 30 partitions under-replicated. First: start broker 3 again"


def said_of(short_id: str, folder: Path, current: str = "prod-17") -> str:
    """Let promtool render the summary of an alert of an incident."""
    info = "kafka_replication_incident_info"
    labels = f'cluster="prod", condition="broker_down", subject="3", severity="warning", short_id="{short_id}"'
    series = {
        f"kafka_replication_condition_since_seconds{{{labels}}}": "7x9",
        f'{info}{{cluster="prod", incident="prod-17", summary="{SENTENCE}", instance="a"}}': "1x9",
        f'{info}{{cluster="prod", incident="prod-17", summary="{SENTENCE}", instance="b"}}': "1x9",
        f'{info}{{cluster="edge", incident="prod-17", summary="of another cluster"}}': "1x9",
        f'{info}{{cluster="prod", incident="prod-18", summary="another one"}}': "1x9",
        f'kafka_replication_incident_current_info{{cluster="prod", incident="prod-12", current="{current}"}}': "1x9",
        'kafka_replication_incident_current_info{cluster="prod", incident="prod-17", current="prod-17"}': "1x9",
    }
    (folder / "rules.yml").write_text(as_yaml(only(RULES, "IsrwatchBrokerDown")))
    asked = {"eval_time": "5m", "alertname": "IsrwatchBrokerDown", "exp_alerts": []}
    test = {
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [asked],
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "test.yml").write_text(json.dumps(document))
    outcome = promtool("test", "rules", folder / "test.yml")
    shown = re.findall(r'summary="(.*?)"', outcome.stdout + outcome.stderr)
    assert len(shown) == 1, outcome.stdout + outcome.stderr
    return str(shown[0])


@pytest.mark.parametrize("short_id", ["prod-17", "prod-12"])
def test_the_summary_is_that_of_the_incident_also_of_one_that_was_merged_into_it(short_id: str, tmp_path: Path) -> None:
    assert said_of(short_id, tmp_path) == SENTENCE


@pytest.mark.parametrize("short_id", ["", "prod-3"])
def test_without_an_open_incident_the_summary_is_that_of_the_alert(short_id: str, tmp_path: Path) -> None:
    assert said_of(short_id, tmp_path) == "Broker 3 of prod is down. First: find out why, and stop no other one"


# Grafana's own alerting.


def test_a_value_of_nothing_and_a_negative_one_fire_in_grafana_too(files: dict[str, str], tmp_path: Path) -> None:
    (group,) = yaml.safe_load(files["grafana-alerts.yaml"])["groups"]
    grafana = {rule["title"]: rule for rule in group["rules"]}
    asked = {
        "IsrwatchNoController": (
            '{cluster="c", condition="no_controller", severity="critical"}',
            'condition_since_seconds{cluster="c", condition="no_controller", severity="critical"} 0',
        ),
        "IsrwatchDegraded": (
            '{cluster="c", source="s", condition="source_refused"}',
            'isrwatch_collector_source_up{cluster="c", source="s"} 0',
        ),
    }
    tests = [
        {
            "interval": "1m",
            "input_series": [
                {"series": ("" if series.startswith("isrwatch") else "kafka_replication_") + series.rpartition(" ")[0],
                 "values": f"{series.rpartition(' ')[2]}x30"}
            ],
            "promql_expr_test": [
                {
                    "expr": grafana[name]["data"][0]["model"]["expr"],
                    "eval_time": "20m",
                    "exp_samples": [{"labels": labels, "value": 1}],
                }
            ],
        }
        for name, (labels, series) in asked.items()
    ]  # fmt: skip
    (tmp_path / "case.yml").write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": tests}))
    outcome = promtool("test", "rules", tmp_path / "case.yml")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
