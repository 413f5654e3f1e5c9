"""Who is woken by the committed alerts, in a few plays of fixed seeds; and how messages are counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporters.backtest.evaluation import ScrapedSeries, firings
from exporters.backtest.rule_files import RuleFile
from tests.judge.alert_results import Sent, Told, alert_rendered, verdict_of
from tests.judge.alerts import RULES, EveryRule, alerted, always_firing
from tests.judge.false_wakers import DRAWERS, waker_played
from tests.judge.first_message import Wanted, texts, without_texts
from tests.judge.fleet import heartbeats_after_our_death, shared_played
from tests.judge.harm import MUST, MUST_NOT, REDUNDANCY_LOST, judged_harm
from tests.judge.notifications import notified
from tests.judge.play import SECOND, START, Play
from tests.judge.quiet import Life, evaluated, quiet_rules
from tests.judge.real_time import Message, page_alerts, row, wrong
from tests.judge.severity import CRITICAL, INFO, WARNING, severity

pytestmark = pytest.mark.prometheus

LONGEST_TEXT = 200

Fired = dict[str, Any]


def fired(alert: str, of: str, began: float, last: float, **labels: str) -> Fired:
    return {"alert": alert, "labels": {"severity": of, **labels}, "began": began, "last": last}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["stop", "rolling", "reassignment"])
def test_planned_work_wakes_nobody(kind: str) -> None:
    result = next(result for seed in range(5) if (result := alerted(seed, (kind,)))["call"] == MUST_NOT)
    assert [each["alert"] for each in result["firings"] if severity(each["labels"]["severity"]) == CRITICAL] == []


def test_an_unclean_election_wakes_in_time_and_says_its_class_and_broker() -> None:
    result = next(result for seed in range(5) if (result := alerted(seed, ("unclean",)))["unclean"])
    (woken, *_) = [each for each in result["firings"] if severity(each["labels"]["severity"]) == CRITICAL]
    assert woken["began"] <= result["unclean"][0] + 60
    assert woken["text"].startswith(f"{woken['labels']['short_id']}: ")
    assert len(woken["text"]) <= LONGEST_TEXT
    assert woken["right"][0]
    assert result["changed"] == [], "no label of a condition changes, and no alert fires again"


FIRED = {
    "one": [
        fired("IsrwatchUnderMinIsr", "critical", 30, 180, short_id="judged-1"),
        fired("IsrwatchOfflinePartitions", "critical", 45, 180, short_id="judged-1"),
        fired("IsrwatchUnderMinIsr", "critical", 90, 180, short_id="judged-2"),
    ],
    "other": [fired("IsrwatchBrokerDown", "warning", 30, 120, subject="1")],
    "info": [fired("IsrwatchIncidentOpen", "info", 30, 120)],
    "play-1": [fired("IsrwatchUnderReplicated", "warning", 15, 60, subject="1")],
    "play-2": [{**fired("IsrwatchUnderMinIsr", "critical", 60, 150), "right": [True, True, False]}],
}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Sent:
    """What one Alertmanager sends of all of them at once."""
    return notified(FIRED, tmp_path_factory.mktemp("alertmanager"))


def test_messages_are_those_that_the_shipped_routes_send(sent: Sent) -> None:
    assert sorted((each.receiver, each.firing) for each in sent["one"] if each.firing) == [
        (CRITICAL, ("IsrwatchOfflinePartitions", "IsrwatchUnderMinIsr")),
        (CRITICAL, ("IsrwatchUnderMinIsr",)),
        (CRITICAL, ("IsrwatchUnderMinIsr",)),
    ]
    down = ("IsrwatchBrokerDown",)
    assert [(each.receiver, each.firing) for each in sent["other"]] == [(WARNING, down), (WARNING, ())]
    assert {each.receiver for each in sent["info"]} == {INFO}
    assert all(30 <= each.second <= 90 for each in sent["other"][:1])


NOTHING: dict[str, Any] = {
    "seed": 1, "is_polled": False, "call": MUST_NOT, "due": None, "harms": [], "disputed": [], "unclean": [],
    "wakes_allowed": 1, "lost": {}, "kinds": ["stop"], "faults": ["stop"], "firings": FIRED["play-1"], "seconds": 600,
    "changed": [],
}  # fmt: skip
HARM = NOTHING | {
    "seed": 2, "call": MUST, "due": 40.0, "harms": [["refused", "orders", 10, 400]], "kinds": ["crash"],
    "firings": FIRED["play-2"],
}  # fmt: skip


def test_the_tables_count_who_was_woken_and_how_often(sent: Sent) -> None:
    text = alert_rendered([NOTHING, HARM], sent, "# Heading")
    assert "| woken although nothing harmful happened | 0 | 0 of 1 |" in text
    assert "| harm that woke too late or never | 0 | 1 of 1 |" in text
    assert "| woken once, of the plays with a wake for harm | 98 % | 100.0 %" in text
    assert "| - next step | | 0.0 %" in text
    assert "| crash | 1 | 1 | 1 |" in text
    assert "| 2 | stop | refused orders 10 to 400 | IsrwatchUnderMinIsr at " in text
    assert "late; first message: next step |" in text


def test_who_is_woken_while_there_is_no_harm_is_woken_in_vain(sent: Sent) -> None:
    harmless = verdict_of(NOTHING | {"firings": FIRED["play-2"]}, sent["play-2"])
    assert [each.firing for each in harmless.in_vain] == [("IsrwatchUnderMinIsr",)]
    assert list(harmless.complaints()) == ["woken without harm"]
    before = verdict_of(HARM | {"harms": [["offline", "orders", 200, 900]], "due": 500}, sent["play-2"])
    assert list(before.complaints()) == ["never", "woken without harm"]


def test_lost_redundancy_must_be_told_once_by_a_warning(sent: Sent) -> None:
    lost = NOTHING | {"lost": {"1": [10, 1_500]}, "seconds": 1_600}
    assert verdict_of(lost, sent["other"]).told_once is True
    assert verdict_of(lost, ()).told_once is False
    assert verdict_of(lost, [*sent["other"], *sent["other"]]).told_once is False
    assert verdict_of(lost | {"seconds": 1_100}, ()).told_once is None


def test_a_told_group_is_read_by_people() -> None:
    assert str(Told(61.4, ("IsrwatchBlind", "IsrwatchUnderMinIsr"))) == "IsrwatchBlind + IsrwatchUnderMinIsr at 61"


@pytest.mark.long
def test_a_fleet_tells_of_one_trouble_what_was_sent() -> None:
    played = {each.what: each for each in shared_played(clusters=3, seconds=1_500)}
    assert {what: (each.critical, each.is_right) for what, each in played.items()} == {
        "dead job": (1, True), "dead exporter": (1, True), "lost bus": (1, True), "restarted job": (0, True),
    }  # fmt: skip


@pytest.mark.long
def test_heartbeats_go_on_without_us_exactly_if_another_alert_has_the_name_of_ours(tmp_path: Path) -> None:
    has_its_name = "Watchdog" in always_firing(RuleFile.read(RULES))
    assert bool(heartbeats_after_our_death(tmp_path)) == has_its_name


def test_in_real_time_a_page_of_the_scenario_must_be_sent_and_no_other() -> None:
    pages = frozenset({"IsrwatchUnderMinIsr", "IsrwatchOfflinePartitions"})
    lost = Message(330.0, CRITICAL, "c", ("IsrwatchOfflinePartitions",), ("Broker 3 of c is lost",))
    refused = Message(435.0, CRITICAL, "c", ("IsrwatchUnderMinIsr",), ("Writes are refused",))
    ticket = Message(60.0, WARNING, "c", ("IsrwatchBrokerDown",), ("Broker 3 of c is down",))
    assert wrong("under_min_isr", [ticket, refused], pages) == ""
    assert wrong("under_min_isr", [ticket], pages) == "somebody must be woken, and was not: IsrwatchUnderMinIsr"
    assert wrong("under_min_isr", [lost], pages).startswith("another page than IsrwatchUnderMinIsr")
    assert wrong("rolling_restart", [ticket], pages) == ""
    assert wrong("rolling_restart", [refused], pages) == "nobody need be woken, and was: IsrwatchUnderMinIsr"
    over = Message(500.0, CRITICAL, "c", (), ())
    assert row("under_min_isr", [refused, over]) == (
        "| `under_min_isr` | 7:15 `IsrwatchUnderMinIsr`: Writes are refused; 8:20 over | - |\n"
    )
    assert {"IsrwatchUnderMinIsr", "IsrwatchBlind"} <= page_alerts()


@pytest.fixture(scope="module")
def announced() -> Play:
    """A broker is away for announced work, with the only replica of partitions."""
    return waker_played(1, "announced_work")


@pytest.mark.long
def test_announced_work_on_what_needs_every_replica_is_no_harm(announced: Play) -> None:
    found = judged_harm(announced)
    assert (found.call, found.harm, found.disputed) == (MUST_NOT, (), ())


@pytest.mark.long
def test_what_was_not_announced_is_disputed_and_what_was_not_even_ordered_is_harm(announced: Play) -> None:
    (one,) = announced.troubles
    ordered = judged_harm(replace(announced, troubles=(replace(one, announced=()),)))
    assert ({each.kind for each in ordered.disputed}, ordered.harm) == ({"ordered"}, ())
    crashed = judged_harm(replace(announced, troubles=(replace(one, announced=(), absences=()),)))
    assert {(each.kind, each.topic) for each in crashed.harm} == {("offline", "scratch")}


@pytest.mark.long
@pytest.mark.parametrize("kind", DRAWERS)
def test_no_kind_that_woke_somebody_in_vain_does_harm(kind: str) -> None:
    found = judged_harm(waker_played(2, kind))
    assert (found.call, found.harm) == (MUST_NOT, ())


@pytest.mark.long
def test_redundancy_is_lost_while_a_broker_is_away_for_long() -> None:
    away = waker_played(14, "lost_broker")  # for 1,544 seconds
    (broker,) = away.troubles[0].brokers
    lost = judged_harm(away).lost
    assert set(lost) == {broker}
    assert lost[broker].seconds > REDUNDANCY_LOST


RULE = {
    "alert": "Lost",
    "expr": "max by (cluster, broker) (lost) == 1",
    "for": "15s",
    "labels": {"severity": "critical"},
    "annotations": {
        "summary": 'Broker {{ $labels.broker }} is "lost"',
        "description": 'Copies: {{ range query "copies" }}{{ .Value }}{{ end }}. Start it.',
    },
}


def test_what_an_alert_says_is_written_by_prometheus_own_engine(tmp_path: Path) -> None:
    rules, series = RuleFile(tmp_path, [{"name": "one", "rules": [RULE]}]), ScrapedSeries()
    for second in range(0, 60, 15):
        series.add(
            f'lost{{cluster="c",broker="2"}} {int(second > 0)}\nlost{{cluster="c",broker="3"}} 1\ncopies {second}\n'
        )
    fired = firings(
        [without_texts(rules)], EveryRule([rules]), series, range(START, START + 60 * SECOND, 15 * SECOND), tmp_path
    )
    assert [(each.began_at - START) // SECOND for each in fired] == [15, 30]
    wanted = [Wanted(each.alert, (each.began_at - START) // SECOND, dict(each.labels)) for each in fired]
    assert texts(tmp_path, rules, wanted) == [
        'Broker 3 is "lost" Copies: 15. Start it.',
        'Broker 2 is "lost" Copies: 30. Start it.',
    ]


@pytest.mark.long
def test_of_a_quiet_piece_with_work_in_it_nothing_fires() -> None:
    life = Life("two", EveryRule([quiet_rules()]).metrics)
    day = life.live(1_200)
    assert day.done
    assert "kafka_replication_cluster_brokers" in life.scrapes[-1]
    assert evaluated(life.scrapes, 1_200, 1_200) == []
