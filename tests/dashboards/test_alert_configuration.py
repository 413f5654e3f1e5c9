"""The rules without an engine: which there are, what each selects, and what the configuration changes of them."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from dashboards.alerts import rule_file
from dashboards.signals.clusters import CONDITION
from streaming.alert_settings import AlertChange, AlertsSettings
from streaming.contracts.alerts import ALERTS, OPT_IN, Pack
from streaming.contracts.conditions import RULES as RULES_OF_CONDITIONS
from streaming.contracts.conditions import Condition
from streaming.contracts.identifiers import SECOND
from streaming.durations import seconds_of
from streaming.settings import Settings

DAY = 86_400
RULES = rule_file(Settings(alerts=AlertsSettings(packs=OPT_IN)))
"""Of every pack."""
BY_NAME: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}


def configured(**alerts: Any) -> Settings:
    return Settings(alerts=AlertsSettings(**alerts))


def waits(name: str) -> int:
    """Give the minutes that a rule waits."""
    return round(seconds_of("for", BY_NAME[name].get("for", "0s")) / 60)


def kept(name: str) -> int:
    """Give the minutes that an alert fires without a series."""
    return round(seconds_of("keep_firing_for", BY_NAME[name]["keep_firing_for"]) / 60)


def test_the_pack_that_is_on_has_sixteen_rules_and_every_other_one_is_asked_for() -> None:
    on = [rule["alert"] for group in rule_file()["groups"] for rule in group["rules"]]
    assert on == [name for name, alert in ALERTS.items() if alert.pack is Pack.ALERTS]
    assert len(on) == len(set(on)) == 16
    assert list(BY_NAME) == list(ALERTS)


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


def test_a_rule_selects_conditions_and_little_else() -> None:
    metrics = {
        name: set(re.findall(r"\b(?:kafka|isrwatch)_\w+|\bup\b", rule["expr"])) for name, rule in BY_NAME.items()
    }
    pack = {name: found for name, found in metrics.items() if ALERTS[name].pack is Pack.ALERTS}
    assert {name for name, found in pack.items() if len(found) > 3} == {"IsrwatchDegraded"}
    for name, alert in ALERTS.items():
        assert (CONDITION.full_name in metrics[name]) == bool(alert.conditions), name


def test_every_rule_of_the_pack_bridges_an_exporter_that_is_gone() -> None:
    lacking = {name for name in BY_NAME if "keep_firing_for" not in BY_NAME[name]}
    assert lacking == {"IsrwatchWatchdog"}
    assert all(kept(name) >= 5 for name in BY_NAME.keys() - lacking)
    assert kept("IsrwatchBlind") >= waits("IsrwatchBlind"), "one blindness turns into another one"
    patient = rules_of(configured(rules={"IsrwatchBlind": AlertChange(lasting=1_800.0)}))["IsrwatchBlind"]
    assert (patient["for"], patient["keep_firing_for"]) == ("30m", "30m")


def test_chosen_clusters_have_the_alerts_that_concern_no_cluster_alone() -> None:
    chosen = rules_of(configured(clusters=("prod-*", "!prod-old")))["IsrwatchDegraded"]["expr"]
    (matcher,) = set(re.findall(r'cluster=~"([^"]+)"', chosen))
    (left_out,) = set(re.findall(r'cluster!~"([^"]+)"', chosen))
    assert [name for name in ("", "prod-1", "prod-old", "test") if re.fullmatch(matcher.replace("\\\\", "\\"), name)
            and not re.fullmatch(left_out.replace("\\\\", "\\"), name)] == ["", "prod-1"]  # fmt: skip


def test_no_step_of_a_certificate_is_graver_than_the_severity_of_its_alert() -> None:
    expression = rules_of(configured(rules={"IsrwatchCertificateExpires": AlertChange(severity="info")}))
    assert "warning" not in expression["IsrwatchCertificateExpires"]["expr"]


def test_a_minimum_that_is_unknown_waits_once() -> None:
    assert RULES_OF_CONDITIONS[Condition.MIN_ISR_UNKNOWN].lasting <= 60 * SECOND, "the rule of its alert waits"


def test_what_may_change_is_no_label() -> None:
    for name, rule in BY_NAME.items():
        assert rule.get("labels", {}).keys() <= {"severity"}, name
        assert "$value" not in str(rule.get("labels")), name
    assert {field.name for field in dataclasses.fields(AlertChange)} == {"severity", "lasting", "threshold", "off"}
