"""What both engines make of a play is compared: what fires, when, what it says, and what is sent of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.judge.alerts import alerted
from tests.judge.notifications import Notification
from tests.judge.severity import CRITICAL
from tests.judge.vmalert import VMALERT, compared, posted, vmalert_rendered

BROKER_DOWN = {"severity": "warning", "subject": "3"}
SENT = [Notification(60.0, CRITICAL, "group", ("IsrwatchUnderMinIsr",)), Notification(360.0, CRITICAL, "group", ())]


def run(began: float, last: float) -> dict[str, Any]:
    return {"alert": "IsrwatchBrokerDown", "labels": BROKER_DOWN, "began": began, "last": last}


def result(*vmalert: dict[str, Any], differ: tuple[Any, ...] = ()) -> dict[str, Any]:
    firings = {"Prometheus": [run(15, 60)], VMALERT: list(vmalert)}
    return {"seed": 7, VMALERT: {"firings": firings, "texts": 4, "differ": list(differ)}}


def test_one_evaluation_is_less_than_two_and_never_is_more() -> None:
    assert list(compared(result(run(15, 60)), {}).lines()) == []
    assert compared(result(run(30, 60)), {}).shifted == ("IsrwatchBrokerDown: Prometheus 15 to 60, vmalert 30 to 60",)
    assert compared(result(run(45, 60)), {}).other == ("IsrwatchBrokerDown: Prometheus 15 to 60, vmalert 45 to 60",)
    assert compared(result(), {}).other == ("IsrwatchBrokerDown: Prometheus 15 to 60, vmalert never",)
    twice = compared(result(run(15, 30), run(60, 60)), {})
    assert twice.other == ("IsrwatchBrokerDown: Prometheus 15 to 60, vmalert 15 to 30 and 60 to 60",)


def test_another_text_is_shown() -> None:
    labels = {**BROKER_DOWN, "alertname": "IsrwatchBrokerDown"}
    other = compared(result(run(15, 60), differ=([labels, 15.0, "one", "another"],)), {})
    assert other.texts == ("IsrwatchBrokerDown at 15: 'one', 'another'",)


def test_messages_are_equal_to_what_they_are_exact_to_and_no_further() -> None:
    same = result(run(15, 60))
    late = [each._replace(second=each.second + 30) for each in SENT]
    later = [each._replace(second=each.second + 45) for each in SENT]
    assert compared(same, {"Prometheus-7": SENT, "vmalert-7": late}).notified == ()
    (other,) = compared(same, {"Prometheus-7": SENT, "vmalert-7": later}).notified
    assert other.startswith("notified by Prometheus: critical IsrwatchUnderMinIsr 60 to 360; notified by vmalert: ")
    assert other.endswith(": critical IsrwatchUnderMinIsr 105 to 405")
    assert compared(same, {"Prometheus-7": SENT, "vmalert-7": SENT[:1]}).notified != ()
    assert compared(same, {"Prometheus-7": SENT}).notified[0].endswith("notified by vmalert: nothing")


def test_the_table_counts_what_differs() -> None:
    text = "\n".join(vmalert_rendered([result(run(30, 60)), result() | {"seed": 8}], {"Prometheus-7": SENT}))
    assert "| alerts that fired, by Prometheus and by vmalert | equal | 2 and 1 |" in text
    assert "| - that began or ended one evaluation apart | | 1 |" in text
    assert "| - that did so by more, or fired by one alone | 0 | 1 |" in text
    assert "| groups that were notified | equal | 1 and 0 |" in text
    assert "| plays of which something else was notified | 0 | 1 of 2 |" in text
    assert "| 8 | IsrwatchBrokerDown: Prometheus 15 to 60, vmalert never |" in text


@pytest.mark.long
@pytest.mark.prometheus
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kind", ["unclean", "lost_broker"])
def test_vmalert_makes_of_a_play_what_prometheus_does(kind: str) -> None:
    played = alerted(5, (kind,), with_vmalert=True)
    assert list(compared(played, {}).lines()) == []
    begins = {(each["alert"], each["began"]) for each in played["firings"]}
    by_vmalert = posted([played])[f"{VMALERT}-5"]
    assert {(each["alert"], each["began"]) for each in by_vmalert} == begins
    assert played[VMALERT]["texts"] >= len(begins)
    assert all(each["last"] > played["seconds"] for each in by_vmalert)  # it is kept firing, and ends after that
