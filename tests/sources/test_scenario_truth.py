"""What each scenario says a monitor ought to find is what the model really did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dashboards.alerts import PLANNED_CAUSES, AlertSettings, rule_file
from tests.plays import SCENARIOS, SECOND, START, played

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.sources.simulated import TraceEntry


def departures(trace: tuple[TraceEntry, ...]) -> Iterator[tuple[TraceEntry, int]]:
    """Every broker that left an ISR, with the step in which it did."""
    isrs: dict[tuple[str, int], tuple[int, ...]] = {}
    for entry in trace:
        key = (entry.topic_id, entry.partition)
        before = isrs.get(key, entry.replicas)
        isrs[key] = entry.isr
        yield from ((entry, broker) for broker in before if broker not in entry.isr and not entry.deleted)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_causes_are_those_of_the_model(name: str) -> None:
    play = played(name)
    assert set(play.scenario.truth.causes) == {str(entry.cause) for entry in play.trace}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_alerts_exist_and_one_reports_each_unplanned_removal(name: str) -> None:
    """Which others fire is tested with the rules themselves: ``tests/dashboards/test_scenario_alerts.py``."""
    play = played(name)
    unplanned = any(entry.cause not in PLANNED_CAUSES for entry, _ in departures(play.trace))
    assert ("KafkaIsrShrink" in play.scenario.truth.alerts) == unplanned
    known = {rule["alert"] for rule in rule_file(AlertSettings())["groups"][1]["rules"]}
    assert set(play.scenario.truth.alerts) <= known


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_change_of_an_isr_belongs_to_an_incident(name: str) -> None:
    play = played(name)
    incidents = play.scenario.truth.incidents
    for entry in play.trace:
        if entry.cause not in {"created", "deleted"}:
            assert any(it.begin * SECOND <= entry.time - START <= it.end * SECOND for it in incidents), entry


@pytest.mark.parametrize("name", SCENARIOS)
def test_who_left_an_isr_is_a_suspect_or_was_expelled_by_one(name: str) -> None:
    play = played(name)
    for entry, broker in departures(play.trace):
        blamed = {
            suspect
            for it in play.scenario.truth.incidents
            if it.begin * SECOND <= entry.time - START <= it.end * SECOND
            for suspect in it.suspects
        }
        assert {broker, entry.leader} & blamed or entry.cause == "reassignment", (entry, broker)
