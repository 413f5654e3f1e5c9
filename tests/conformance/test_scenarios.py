"""Scenarios that come with the program write logs that the checker explains, with the true causes among its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.checker import Checker
from tests.conformance.truth import actions_of
from tests.plays import SCENARIOS, played

if TYPE_CHECKING:
    from tests.conformance.actions import Action


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_record_of_a_scenario_is_an_action(name: str) -> None:
    checker = Checker(min_insync_replicas=1, unclean_leader_election=False)
    actions: list[Action] = []
    for commit in played(name).commits:
        actions += actions_of(checker, commit)
    assert len(actions) > 100
