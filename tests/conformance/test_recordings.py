"""What real Kafka 4.3.1 clusters wrote, and what the built-in scenarios write, is explained by actions of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streaming.contracts.events import Cause
from streaming.sources.simulated.timeline import step_text
from tests.conformance.actions import Action, ActionName
from tests.conformance.checker import Checker
from tests.conformance.quirks import Quirk
from tests.conformance.truth import actions_of
from tests.plays import SCENARIOS, played

RECORDINGS = ("one_controller", "replication_links", "controller_failover", "operators_and_faults")


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_record_of_a_recorded_cluster_is_an_action_of_the_model(
    recorded_log: Callable[[str], Any], name: str
) -> None:
    checker = Checker()
    batches = recorded_log(name)
    found = [checker.explain(batch) for batch in batches]
    assert [str(deviation) for each in found for deviation in each.deviations] == []
    assert sum(len(each.actions) for each in found) == sum(len(batch.records) for batch in batches)


def told(action: Action) -> str:
    return f"{action}  {step_text(action.step)}" if action.step is not None else str(action)


@pytest.mark.parametrize("name", ["one_controller", "replication_links", "operators_and_faults"])
def test_a_recorded_cluster_reads_as_a_list_of_actions(
    recorded_log: Callable[[str], Any], golden: Callable[[str, str], None], name: str
) -> None:
    checker = Checker()
    actions = [action for batch in recorded_log(name) for action in checker.explain(batch).actions]
    lines = [told(action) for action in actions if action.name is not ActionName.NO_OP]
    golden(f"conformance/{name}.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("part", [0.25, 0.5, 0.75])
def test_it_may_begin_in_the_middle_with_the_state_so_far(recorded_log: Callable[[str], Any], part: float) -> None:
    batches = recorded_log("one_controller")
    middle = int(len(batches) * part)
    checker = Checker()
    checker.restore(batches[:middle])
    assert [deviation for batch in batches[middle:] for deviation in checker.observe(batch)] == []


def test_an_index_that_a_new_minimum_left_behind_repeats_changes_and_nothing_else_deviates(
    recorded_log: Callable[[str], Any],
) -> None:
    """Each repetition is of a partition 0: the number that fills a gap in the controller's array."""
    checker = Checker()
    actions = [action for batch in recorded_log("operators_and_faults") for action in checker.explain(batch).actions]
    deviating = {(action.quirk, action.name) for action in actions if action.quirk}
    assert deviating == {
        (Quirk.REPEATED_CHANGE, ActionName.REGISTER_BROKER),
        (Quirk.REPEATED_CHANGE, ActionName.UNREGISTER_BROKER),
    }
    assert {action.subject for action in actions if action.quirk} == {"strict-0"}


def test_a_broker_that_was_moved_away_and_came_back_with_nothing_won_a_clean_election(
    recorded_log: Callable[[str], Any],
) -> None:
    """A flaw of 4.3.1: dropped replicas stay eligible (see the switch ``elr_forgets_dropped_replicas``)."""
    checker = Checker()
    actions = [action for batch in recorded_log("operators_and_faults") for action in checker.explain(batch).actions]
    moved = [action for action in actions if action.subject == "moved-1" and action.step is not None]
    dropped, back, elected = (action.step for action in moved[:3] if action.step is not None)
    assert (dropped.after.replicas, dropped.after.elr) == ((3,), (1, 2))
    assert (back.after.replicas, back.after.isr, back.after.adding_replicas) == ((3, 2), (3,), (2,))
    assert (elected.after.leader, elected.after.isr, elected.cause) == (2, (2,), Cause.ELR_ELECTION)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_record_of_a_scenario_is_an_action(name: str) -> None:
    checker = Checker(min_insync_replicas=1, unclean_leader_election=False)
    actions: list[Action] = []
    for commit in played(name).commits:
        actions += actions_of(checker, commit)
    assert len(actions) > 100
