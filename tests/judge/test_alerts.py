"""Who is woken by the committed alerts, in a few plays of fixed seeds; and how messages are counted."""

from __future__ import annotations

import pytest

from tests.judge.alert_results import Sent, alert_rendered
from tests.judge.alerts import MUST, alerted
from tests.judge.notifications import notified
from tests.judge.play import played
from tests.judge.real_time import Message, page_alerts, row, wrong
from tests.judge.unavailable import Span, unavailable

pytestmark = pytest.mark.prometheus


def fired(alert: str, severity: str, began: float, last: float, **labels: str) -> dict[str, object]:
    return {"alert": alert, "labels": {"severity": severity, **labels}, "began": began, "last": last}


@pytest.mark.parametrize(
    "kind", ["stop", *(pytest.param(it, marks=pytest.mark.long) for it in ("rolling", "reassignment"))]
)
def test_planned_work_wakes_nobody(kind: str) -> None:
    result = next(result for seed in range(5) if not (result := alerted(seed, (kind,)))["harm"])
    assert [each["alert"] for each in result["firings"] if each["labels"]["severity"] == "page"] == []


def test_an_unclean_election_wakes_in_time_with_its_class_and_broker() -> None:
    result = next(result for seed in range(5) if (result := alerted(seed, ("unclean",)))["call"] == MUST)
    pages = [each for each in result["firings"] if each["labels"]["severity"] == "page"]
    assert pages[0]["began"] <= result["due"]
    assert result["blamed"]


def test_time_without_a_leader_or_the_minimum_is_that_of_the_model() -> None:
    play = next(play for seed in range(5) if unavailable(play := played(seed, ("several",))))
    spans = unavailable(play)
    assert all(span.begin < span.end <= play.seconds for span in spans)
    assert spans == sorted(spans)
    assert min(span.begin for span in spans) >= play.begin
    assert Span(1.0, 3.5).seconds == 2.5


FIRED = {
    "one": [
        fired("KafkaUnderMinIsr", "page", 30, 240),
        fired("KafkaBrokerLost", "page", 60, 240, broker="1"),
        fired("KafkaBrokerLost", "page", 180, 240, broker="2"),
    ],
    "other": [fired("KafkaBrokerDown", "ticket", 30, 120, broker="1")],
    "info": [fired("KafkaIncident", "info", 30, 120)],
    "play-1": [fired("KafkaBrokerStopped", "ticket", 15, 60, broker="1")],
    "play-2": [fired("KafkaUnderMinIsr", "page", 130, 190)],
}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Sent:
    """What one Alertmanager sends of all of them at once."""
    return notified(FIRED, tmp_path_factory.mktemp("alertmanager"))


def test_messages_are_those_that_the_shipped_routes_send(sent: Sent) -> None:
    assert sorted((each.receiver, each.firing) for each in sent["one"] if each.firing) == [
        ("page", ("KafkaBrokerLost",)),
        ("page", ("KafkaBrokerLost", "KafkaBrokerLost")),
        ("page", ("KafkaUnderMinIsr",)),
    ]
    assert [(each.receiver, each.firing) for each in sent["other"]] == [
        ("ticket", ("KafkaBrokerDown",)),
        ("ticket", ()),
    ]
    assert {each.receiver for each in sent["info"]} == {"info"}


def test_the_tables_count_who_was_woken_and_how_often(sent: Sent) -> None:
    harmless = {
        "seed": 1, "is_polled": False, "call": "must not", "harm": [], "due": None, "blamed": None,
        "unavailable": [], "faults": ["stop"], "firings": FIRED["play-1"],
    }  # fmt: skip
    late = harmless | {
        "seed": 2, "call": "must", "harm": ["refused"], "due": 100.0, "blamed": True, "unavailable": [[10, 200]],
        "firings": FIRED["play-2"],
    }  # fmt: skip
    text = alert_rendered([harmless, late], sent, "# Heading")
    assert "| a page although nothing harmful happened | 0 | 0 of 1 |" in text
    assert "| a required page that was late or missing | 0 | 1 of 1 |" in text
    assert "| only one page, of the plays with a page | 100 % | 100.0 %" in text
    assert "| 2 | stop | 10 to 200 | KafkaUnderMinIsr at 130 | late or never |" in text


def test_in_real_time_a_page_of_the_scenario_must_be_sent_and_no_other() -> None:
    pages = frozenset({"KafkaUnderMinIsr", "KafkaOfflinePartitions", "KafkaBrokerLost"})
    lost = Message(330.0, "page", "c", ("KafkaBrokerLost",), ("Broker 3 of c is lost",))
    refused = Message(435.0, "page", "c", ("KafkaUnderMinIsr",), ("Writes are refused",))
    ticket = Message(60.0, "ticket", "c", ("KafkaBrokerDown",), ("Broker 3 of c is down",))
    assert wrong("under_min_isr", [ticket, refused], pages) == ""
    assert wrong("under_min_isr", [ticket], pages) == "somebody must be woken, and was not: KafkaUnderMinIsr"
    assert wrong("under_min_isr", [lost], pages).startswith("another page than KafkaUnderMinIsr")
    assert wrong("rolling_restart", [ticket], pages) == ""
    assert wrong("rolling_restart", [refused], pages) == "nobody need be woken, and was: KafkaUnderMinIsr"
    over = Message(500.0, "page", "c", (), ())
    assert row("under_min_isr", [refused, over]) == (
        "| `under_min_isr` | 7:15 `KafkaUnderMinIsr`: Writes are refused; 8:20 over | - |\n"
    )
    assert {"KafkaUnderMinIsr", "KafkaBrokerLost"} <= page_alerts()
