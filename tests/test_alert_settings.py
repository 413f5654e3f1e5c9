"""The section [alerts]: what it refuses, and what it changes of conditions and their severities."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.read_model.conditions import ALL_RULES, ConditionSettings
from streaming.alert_settings import AlertChange, AlertsSettings, rules_of, shown_severity
from streaming.contracts.alerts import ALERTS
from streaming.contracts.conditions import RULES, Condition
from streaming.contracts.events import Severity
from streaming.contracts.identifiers import SECOND
from streaming.errors import ConfigurationError
from streaming.settings import settings_of


def read(text: str) -> AlertsSettings:
    return settings_of(tomllib.loads(text)).alerts


def changed(**changes: Any) -> AlertsSettings:
    return AlertsSettings(rules={f"Isrwatch{name}": change for name, change in changes.items()})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[alerts]\npack = []", "unknown key alerts.pack (did you mean packs?); the keys of [alerts] are: packs"),
        ("[alerts]\npacks = ['slos']", "alerts.packs has 'slos'; use some of groups, hygiene, slo, speed, events"),
        ("[alerts]\nclusters = ['^test']", "alerts.clusters has '^test', which looks like a regular expression"),
        ("[alerts.severity_names]\npage = 'x'", "alerts.severity_names has 'page'; rename one of info, "),
        ("[alerts.severity_names]\nwarning = ''", "alerts.severity_names has an empty name; write one"),
        ("[alerts]\nrules = 1", "alerts.rules must be a table: write [alerts.rules.IsrwatchBrokerDown]"),
        ("[alerts.rules]\nIsrwatchBlind = 1", "alerts.rules.IsrwatchBlind must be a table: write [alerts.rules."),
        ("[alerts.rules.BrokerDown]", "alerts.rules.BrokerDown: no alert is called so; did you mean IsrwatchBroker"),
        ("[alerts.rules.xyz]", "alerts.rules.xyz: no alert is called so; the alerts are: IsrwatchOfflinePartitions, "),
        ("[alerts.rules.IsrwatchBlind]\nseverty = 'info'",
         "unknown key alerts.rules.IsrwatchBlind.severty; the keys of an alert are: severity, for, threshold, off"),
        ("[alerts.rules.IsrwatchBlind]\nseverity = 'page'",
         "alerts.rules.IsrwatchBlind.severity is 'page'; use one of info, warning, critical"),
        ("[alerts.rules.IsrwatchBlind]\nfor = 15", "alerts.rules.IsrwatchBlind.for is 15, without a unit"),
        ("[alerts.rules.IsrwatchBlind]\nfor = '31d'", "alerts.rules.IsrwatchBlind.for is 31d; it must be at most 30d"),
        ("[alerts.rules.IsrwatchUncleanElection]\nfor = '5m'",
         "alerts.rules.IsrwatchUncleanElection.for: this alert does not wait for anything to last; remove the key"),
        ("[alerts.rules.IsrwatchBlind]\nthreshold = 1",
         "alerts.rules.IsrwatchBlind.threshold: this alert has no threshold; remove the key"),
        ("[alerts.rules.IsrwatchCertificateExpires]\nthreshold = 21",
         "alerts.rules.IsrwatchCertificateExpires.threshold is 21, without a unit"),
        ("[alerts.rules.IsrwatchHandlersBusy]\nthreshold = '30%'",
         "alerts.rules.IsrwatchHandlersBusy.threshold is '30%'; write a number, such as 0.2"),
        ("[alerts.rules.IsrwatchHandlersBusy]\nthreshold = nan",
         "alerts.rules.IsrwatchHandlersBusy.threshold is nan; write a number, such as 0.2"),
        ("[alerts.rules.IsrwatchHandlersBusy]\nthreshold = 20",
         "alerts.rules.IsrwatchHandlersBusy.threshold is 20; write a share between 0 and 1, such as 0.2"),
        ("[alerts.rules.IsrwatchAvailabilityBurns]\nthreshold = 99.9",
         "alerts.rules.IsrwatchAvailabilityBurns.threshold is 99.9; write a share between 0 and 1, such as 0.999"),
        ("[alerts.severity_names]\ncritical = 'warning'",
         "alerts.severity_names calls two severities 'warning'; give each its own name"),
        ("[alerts.severity_names]\ncritical = 'wake\"up'",
         "alerts.severity_names has 'wake\"up'; write letters, digits, - _ and . only"),
        ("[alerts.labels]\n'bad name' = 'x'", "alerts.labels has 'bad name', which no label of Kub"),
        ("[alerts.labels]\n'example.com/a/b' = 'x'", "alerts.labels has 'example.com/a/b', which no label of"),
        ("[alerts.labels]\nrelease = 'a b'", "alerts.labels.release is 'a b', no value of a label"),
        ("[alerts]\nnamespace = 'Monitoring'", "alerts.namespace is 'Monitoring'; write small letters, "),
        ("[alerts.rules.IsrwatchBlind]\noff = 'yes'", "alerts.rules.IsrwatchBlind.off must be true or false, not"),
    ],
)  # fmt: skip
def test_a_wrong_key_or_value_is_named_with_the_fix(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(text)
    assert str(refused.value).startswith(sentence)


def test_what_is_written_is_what_is_read() -> None:
    alerts = read(
        """
        [alerts]
        packs = ["slo"]
        [alerts.rules.IsrwatchBrokerDown]
        severity = "critical"
        for = "1h30m"
        [alerts.rules.IsrwatchCertificateExpires]
        threshold = "21d"
        [alerts.rules.IsrwatchHandlersBusy]
        threshold = 0.3
        off = true
        """
    )
    assert alerts.packs == ("slo",)
    assert alerts.rules == {
        "IsrwatchBrokerDown": AlertChange(severity="critical", lasting=5_400.0),
        "IsrwatchCertificateExpires": AlertChange(threshold=21 * 86_400.0),
        "IsrwatchHandlersBusy": AlertChange(threshold=0.3, off=True),
    }


def test_without_a_section_rules_are_those_of_the_contract() -> None:
    assert rules_of(AlertsSettings()) == RULES
    assert ConditionSettings.of(AlertsSettings()) == ConditionSettings()


def test_trouble_that_comes_and_goes_is_told_after_half_as_long_again() -> None:
    rule = rules_of(changed(UnderMinIsr=AlertChange(lasting=300.0)))[Condition.UNDER_MIN_ISR]
    assert (rule.lasting, rule.adding_up) == (300 * SECOND, 450 * SECOND)
    default = RULES[Condition.UNDER_MIN_ISR]
    assert default.adding_up == default.lasting * 3 // 2, "the default, too"


def test_only_the_gravest_severity_of_an_alert_becomes_another_one() -> None:
    graver = rules_of(changed(BrokerDown=AlertChange(severity="critical")))
    assert graver[Condition.BROKER_DOWN].severity is Severity.CRITICAL
    milder = rules_of(changed(OfflinePartitions=AlertChange(severity="info")))
    of_planned = milder[Condition.OFFLINE_PLANNED].severity
    assert (milder[Condition.OFFLINE].severity, of_planned) == (Severity.INFO, Severity.INFO)
    planned = rules_of(changed(OfflinePartitions=AlertChange(severity="critical")))[Condition.OFFLINE_PLANNED]
    assert planned.severity is Severity.WARNING


def test_conditions_of_the_exporter_have_their_severity_from_here_and_wait_in_their_rule() -> None:
    alerts = changed(HangingTransaction=AlertChange(severity="critical", lasting=60.0))
    rule = rules_of(alerts, ALL_RULES)[Condition.HANGING_TRANSACTION]
    assert (rule.severity, rule.lasting) == (Severity.CRITICAL, 0)


@given(
    name=st.sampled_from([name for name, alert in ALERTS.items() if alert.of_job and alert.lasting]),
    severity=st.sampled_from(["", *Severity]),
    lasting=st.none() | st.floats(1, 86_400),
)
def test_a_change_of_one_alert_is_one_of_its_own_conditions_alone(
    name: str, severity: str, lasting: float | None
) -> None:
    rules = rules_of(AlertsSettings(rules={name: AlertChange(severity=severity, lasting=lasting)}))
    for condition, rule in rules.items():
        default = RULES[condition]
        if condition not in ALERTS[name].conditions:
            assert rule == default
        assert rule.kept == default.kept
        assert (rule.lasting == 0) == (default.lasting == 0), "a moment stays one"
        assert (rule.adding_up is None) == (default.adding_up is None)


def test_every_condition_that_is_raised_has_one_alert() -> None:
    alerted = [condition for alert in ALERTS.values() for condition in alert.conditions]
    assert len(alerted) == len(set(alerted))
    assert ALL_RULES.keys() == set(alerted)


def test_a_severity_without_another_name_keeps_its_own() -> None:
    alerts = AlertsSettings(severity_names={"critical": "page"})
    assert [shown_severity(alerts, severity) for severity in Severity] == ["info", "warning", "page"]


def test_labels_that_operators_select_by_are_taken() -> None:
    alerts = read(
        '[alerts.labels]\n"app.kubernetes.io/part-of" = "kafka"\nrelease = "kube-prometheus-stack"\nrole = ""'
    )
    assert list(alerts.labels) == ["app.kubernetes.io/part-of", "release", "role"]
