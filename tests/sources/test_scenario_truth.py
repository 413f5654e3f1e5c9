"""What each scenario says a monitor ought to find is what the model really did."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dashboards.alerts import PLANNED_CAUSES, AlertSettings, rule_file
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.sources.simulated import Scenario, SimulatedSource, TraceEntry, load_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

SCENARIOS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "scenarios").glob("*.toml"))
SECOND = 1_000_000
START = 1_700_000_000 * SECOND


@cache
def played(name: str) -> tuple[Scenario, SimulatedSource]:
    scenario = load_scenario(name)
    source = SimulatedSource(
        scenario, seed=1, cluster_id=ClusterId("c"), cluster="c", name="simulated:c", epoch=Micros(START)
    )
    source.poll(Micros(START + round(scenario.duration * SECOND) - 1))
    return scenario, source


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
    scenario, source = played(name)
    assert set(scenario.truth.causes) == {str(entry.cause) for entry in source.trace()}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_alerts_exist_and_one_reports_each_unplanned_removal(name: str) -> None:
    """Which others fire is tested with the rules themselves: ``tests/dashboards/test_scenario_alerts.py``."""
    scenario, source = played(name)
    unplanned = any(entry.cause not in PLANNED_CAUSES for entry, _ in departures(source.trace()))
    assert ("KafkaIsrShrink" in scenario.truth.alerts) == unplanned
    known = {rule["alert"] for rule in rule_file(AlertSettings())["groups"][1]["rules"]}
    assert set(scenario.truth.alerts) <= known


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_change_of_an_isr_belongs_to_an_incident(name: str) -> None:
    scenario, source = played(name)
    incidents = scenario.truth.incidents
    for entry in source.trace():
        if entry.cause not in {"created", "deleted"}:
            assert any(it.begin * SECOND <= entry.time - START <= it.end * SECOND for it in incidents), entry


@pytest.mark.parametrize("name", SCENARIOS)
def test_who_left_an_isr_is_a_suspect_or_was_expelled_by_one(name: str) -> None:
    scenario, source = played(name)
    for entry, broker in departures(source.trace()):
        blamed = {
            suspect
            for it in scenario.truth.incidents
            if it.begin * SECOND <= entry.time - START <= it.end * SECOND
            for suspect in it.suspects
        }
        assert {broker, entry.leader} & blamed or entry.cause == "reassignment", (entry, broker)
