"""What the drill accepts as right, and what it does not. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.events import PLANNED_CLASSES
from tests.drill.faults import FAULTS


def told(kind: str, *brokers: int) -> dict[str, Any]:
    return {"incident_class": kind, "suspects": [{"broker": broker, "score": 1.0} for broker in brokers]}


def test_ten_faults_are_played() -> None:
    assert len(FAULTS) == 10


@pytest.mark.parametrize(
    ("fault", "rows"),
    [
        ("two_crashes", [told("broker_loss", 1), told("broker_loss", 2)]),
        ("rolling_restart_with_crash", [told("controlled_shutdown"), told("broker_loss", 2)]),
        ("decommission", [told("reassignment")]),
        ("preferred_elections", []),
    ],
)
def test_what_was_told_as_it_was_is_right(fault: str, rows: list[dict[str, Any]]) -> None:
    assert FAULTS[fault].wrong(rows) == ""


@pytest.mark.parametrize(
    ("fault", "rows", "wrong"),
    [
        ("two_crashes", [told("rolling_restart", 1, 2)], "told rolling_restart of [1, 2]"),
        (
            "rolling_restart_with_crash",
            [told("broker_loss", 2), told("rolling_restart", 1, 2, 3)],
            "told rolling_restart of [1, 2, 3]",
        ),
        ("two_crashes", [told("broker_loss", 1)], "not told: broker_loss of [2]"),
        ("two_brokers", [told("broker_loss", 2), told("broker_loss", 3)], "told broker_loss of [2]"),
        ("preferred_elections", [told("controlled_shutdown", 1)], "told controlled_shutdown of [1]"),
        ("decommission", [told("reassignment"), told("broker_loss", 5)], "told broker_loss of [5]"),
    ],
)
def test_what_was_told_as_something_else_is_said(fault: str, rows: list[dict[str, Any]], wrong: str) -> None:
    assert FAULTS[fault].wrong(rows) == wrong


def test_the_broker_that_was_chosen_is_the_one_to_blame() -> None:
    fault = FAULTS["controller_and_broker"]
    assert fault.wrong([told("broker_loss", 2)], chosen=2) == ""
    assert fault.wrong([told("broker_loss", 1)], chosen=2) == "told broker_loss of [1]"


def test_nothing_planned_is_allowed_beside_a_crash_but_what_was_planned_of_it() -> None:
    planned = {name for name, fault in FAULTS.items() if fault.allowed & PLANNED_CLASSES}
    assert planned == {"rolling_restart_with_crash", "disk_lost", "decommission"}
