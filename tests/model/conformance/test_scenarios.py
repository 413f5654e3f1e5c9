"""Scenarios that come with the program write logs that the checker explains, with the true causes among its own."""

from __future__ import annotations

import pytest

from streaming.contracts.identifiers import Micros
from streaming.model.conformance.actions import Action
from streaming.model.conformance.checker import Checker
from streaming.resources import conf_path
from streaming.sources.simulated.scenario_file import load_scenario
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation
from tests.plugins.conformance import actions_of


@pytest.mark.parametrize("name", sorted(found.stem for found in conf_path("scenarios").glob("*.toml")))
def test_every_record_of_a_scenario_is_an_action(name: str) -> None:
    scenario = load_scenario(name)
    simulation = Simulation(scenario, seed=7, origin=Micros(0))
    checker = Checker(min_insync_replicas=1, unclean_leader_election=False)
    actions: list[Action] = []

    def look() -> None:
        for commit in simulation.cluster.take_commits():
            actions.extend(actions_of(checker, commit))

    simulation.play(WARM_UP_MS + round(1_000 * min(scenario.duration, 120)), look)
    assert len(actions) > 150
