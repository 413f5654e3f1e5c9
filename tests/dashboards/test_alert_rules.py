"""The rules as promtool sees them: what fires when, with which labels, through which gap, and when it is over."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from dashboards.alerts import rule_file
from dashboards.signals.clusters import CONDITION as SINCE
from streaming.alert_settings import AlertChange, AlertsSettings
from streaming.contracts.alerts import ALERTS, OPT_IN, Pack
from streaming.contracts.conditions import OF_BROKERS, Condition
from streaming.durations import seconds_of
from streaming.settings import Settings
from tests.dashboards.promtool import only, played, promtool

pytestmark = pytest.mark.prometheus

EVERY_PACK = Settings(alerts=AlertsSettings(packs=OPT_IN))
RULES = rule_file(EVERY_PACK)
BY_NAME: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
OWN = {"IsrwatchBlind", "IsrwatchDegraded"}
OF_CONDITIONS = [
    (name, condition) for name, alert in ALERTS.items() for condition in (alert.conditions if name not in OWN else ())
]
BEGIN = 10


def configured(**alerts: Any) -> Settings:
    return Settings(alerts=AlertsSettings(**alerts))


def raised(condition: str, exporter: str = "a", **labels: str) -> str:
    every = {"cluster": "prod", "condition": condition, "instance": exporter, "job": "isrwatch", **labels}
    labelled = ", ".join(f'{name}="{value}"' for name, value in every.items())
    return f"{SINCE.full_name}{{{labelled}}}"


def waits(name: str) -> int:
    return round(seconds_of("for", BY_NAME[name].get("for", "0s")) / 60)


def kept(name: str) -> int:
    return round(seconds_of("keep_firing_for", BY_NAME[name]["keep_firing_for"]) / 60)


def test_the_pack_that_is_on_has_sixteen_rules_and_every_other_one_is_asked_for() -> None:
    on = [rule["alert"] for group in rule_file()["groups"] for rule in group["rules"]]
    assert on == [name for name, alert in ALERTS.items() if alert.pack is Pack.ALERTS]
    assert len(on) == len(set(on)) == 16
    assert list(BY_NAME) == list(ALERTS)


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
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, {18: set(), 22: {BLIND}, 80: {BLIND}})


def test_a_dead_exporter_or_an_empty_prometheus_is_one_alert(tmp_path: Path) -> None:
    series = {FRESH.format(name): "6x10 stale" for name in ("prod", "edge")}
    series |= {INFO.format(name, name): "1x10 stale" for name in ("prod", "edge")}
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, {18: set(), 22: {BLIND}, 3000: {BLIND}})


def test_an_upgrade_that_takes_some_minutes_wakes_nobody(tmp_path: Path) -> None:
    series = {
        FRESH.format("prod"): "6x10 _x1 stale _x6 6x40",
        INFO.format("prod", "p"): "1x16 stale _x2 1x40",
        raised("job_down", cluster="", severity="critical"): "_x11 7x3 stale",
    }
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, {minute: set() for minute in range(40)})


def test_one_stale_cluster_next_to_fresh_ones_is_named(tmp_path: Path) -> None:
    series = {
        FRESH.format("prod"): "6x60",
        FRESH.format("edge"): "6x10 stale",
        INFO.format("prod", "p"): "1x60",
        INFO.format("edge", "e"): "1x60",
        raised("data_stale", cluster="edge", severity="critical"): "_x11 7x30 stale",
    }
    played(
        tmp_path, only(RULES, "IsrwatchBlind"), series, {20: set(), 22: {blind("edge")}, 50: {blind("edge")}, 55: set()}
    )


def test_blindness_that_turns_into_another_one_never_ends_in_between(tmp_path: Path) -> None:
    series = {
        FRESH.format("prod"): "6x40 stale",
        INFO.format("prod", "p"): "1x40 stale",
        raised("data_stale", cluster="edge", severity="critical"): "_x5 7x35 stale",
    }
    firing = {39: {blind("edge")}, 49: {blind("edge")}, 52: {BLIND}}
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, firing)


def test_one_of_two_exporters_that_dies_leaves_its_clusters_blind_and_a_rename_does_not(tmp_path: Path) -> None:
    series = {
        FRESH.format("prod"): "6x60",
        INFO.format("prod", "p"): "1x60",
        INFO.format("edge", "e"): "1x10 stale",
        INFO.format("old", "o"): "1x10 stale",
        INFO.format("new", "o"): "_x11 1x50",
    }
    played(tmp_path, only(RULES, "IsrwatchBlind"), series, {19: set(), 22: {blind("edge")}})


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


def rules_of(settings: Settings) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in rule_file(settings)["groups"] for rule in group["rules"]}


def test_an_alert_is_switched_off_made_graver_and_given_more_time() -> None:
    rules = rules_of(
        configured(
            rules={
                "IsrwatchHangingTransaction": AlertChange(off=True),
                "IsrwatchDegraded": AlertChange(severity="info", lasting=3_600.0),
                "IsrwatchBrokerDown": AlertChange(lasting=3_600.0),
                "IsrwatchCertificateExpires": AlertChange(threshold=21.0 * DAY, severity="warning"),
            }
        )
    )
    assert "IsrwatchHangingTransaction" not in rules
    assert (rules["IsrwatchDegraded"]["labels"], rules["IsrwatchDegraded"]["for"]) == ({"severity": "info"}, "1h")
    assert "for" not in rules["IsrwatchBrokerDown"], "its condition is raised later"
    assert f"< {21 * DAY}" in rules["IsrwatchCertificateExpires"]["expr"]
    assert '"critical"' not in rules["IsrwatchCertificateExpires"]["expr"]


def test_severities_have_the_names_of_others() -> None:
    names = {"critical": "page", "warning": "ticket"}
    rules = rules_of(configured(severity_names=names, packs=OPT_IN))
    assert {rule["labels"]["severity"] for rule in rules.values() if "labels" in rule} == {"page", "ticket", "info"}
    assert '"ticket"' in rules["IsrwatchCertificateExpires"]["expr"]


def test_clusters_topics_and_groups_that_are_left_out_have_no_alert(tmp_path: Path) -> None:
    settings = configured(clusters=("!test-*", "!it's"), groups=("!console-*",), packs=("groups",))
    rules = rule_file(settings)
    for rule in rules_of(settings).values():
        if rule["alert"] != "IsrwatchWatchdog":
            assert 'cluster!~"test\\\\-.*|it\'s"' in rule["expr"], rule["alert"]
    series = {raised("offline_partitions", cluster=name, severity="critical"): "7x20" for name in ("test-1", "prod")}
    alert = 'alertname="IsrwatchOfflinePartitions", cluster="prod", condition="offline_partitions", severity="critical"'
    played(tmp_path, only(rules, "IsrwatchOfflinePartitions"), series, {10: {alert}})


def test_a_rule_selects_conditions_and_little_else() -> None:
    metrics = {
        name: set(re.findall(r"\b(?:kafka|isrwatch)_\w+|\bup\b", rule["expr"])) for name, rule in BY_NAME.items()
    }
    pack = {name: found for name, found in metrics.items() if ALERTS[name].pack is Pack.ALERTS}
    assert {name for name, found in pack.items() if len(found) > 3} == {"IsrwatchDegraded"}
    for name, alert in ALERTS.items():
        assert (SINCE.full_name in metrics[name]) == bool(alert.conditions), name


def test_every_rule_of_the_pack_bridges_an_exporter_that_is_gone() -> None:
    lacking = {name for name in BY_NAME if "keep_firing_for" not in BY_NAME[name]}
    assert lacking == {"IsrwatchWatchdog"}
    assert all(kept(name) >= 5 for name in BY_NAME.keys() - lacking)
    assert kept("IsrwatchBlind") >= waits("IsrwatchBlind"), "one blindness turns into another one"


def test_what_may_change_is_no_label() -> None:
    for name, rule in BY_NAME.items():
        assert rule.get("labels", {}).keys() <= {"severity"}, name
        assert "$value" not in str(rule.get("labels")), name
    assert {field.name for field in dataclasses.fields(AlertChange)} == {"severity", "lasting", "threshold", "off"}
