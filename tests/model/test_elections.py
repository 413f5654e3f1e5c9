"""Elections and eligible leader replicas: G14 to G21, as Kafka's own PartitionChangeBuilderTest asserts them."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.records import RECOVERED, RECOVERING
from streaming.model.constants import Switches
from streaming.model.controller.change import Candidates, Election, Mode, Outcome, Target, build, elect
from streaming.model.messages.registrations import PartitionRegistration as Registration


def target(
    isr: tuple[int, ...], *, live: set[int], min_isr: int = 3, elr: bool = True, mode: Mode = Mode.ONLINE
) -> Target:
    return Target(isr=isr, acceptable=live.__contains__, min_isr=min_isr, elr_enabled=elr, mode=mode)  # type: ignore[arg-type]


def step(before: Registration, aim: Target) -> Registration:
    change = build(before, aim)
    assert change is not None
    return change.after


def test_who_leaves_below_the_minimum_becomes_eligible() -> None:
    """G14."""
    after = step(Registration((1, 2, 3, 4), (1, 2, 3, 4), 1), target((1, 2), live={1, 2}))
    assert (after.isr, after.elr, after.last_known_elr, after.leader) == ((1, 2), (3, 4), (), 1)


def test_a_full_isr_clears_the_eligible_replicas() -> None:
    """G15."""
    after = step(Registration((1, 2, 3), (1, 2), 1, elr=(3,)), target((1, 2, 3), live={1, 2, 3}))
    assert (after.isr, after.elr) == ((1, 2, 3), ())


def test_an_eligible_replica_leads_when_the_isr_is_gone() -> None:
    """G16: clean, so the recovery state stays."""
    after = step(Registration((1, 2, 3), (1,), 1, elr=(3,)), target((), live={3}))
    assert (after.leader, after.isr, after.elr) == (3, (3,), (1,))
    assert after.leader_recovery_state == RECOVERED


def test_without_anybody_the_last_leader_is_remembered() -> None:
    """G17."""
    after = step(Registration((1, 2, 3, 4), (1, 2, 3, 4), 1), target((), live=set()))
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (-1, (), (1, 2, 3, 4), (1,))


def test_the_last_known_leader_returns_uncleanly() -> None:
    """G18."""
    change = build(Registration((1, 2), (), -1, last_known_elr=(1,)), target((), live={1}))
    assert change is not None
    assert (change.outcome, change.after.leader, change.after.isr) == (Outcome.LAST_KNOWN, 1, (1,))
    assert (change.after.leader_recovery_state, change.after.last_known_elr) == (RECOVERING, ())


def test_the_last_known_leader_waits_while_somebody_is_eligible() -> None:
    """G19."""
    before = Registration((1, 2, 3), (), -1, elr=(3,), last_known_elr=(1,))
    assert build(before, target((), live={1})) is None


@pytest.mark.parametrize(("mode", "leader"), [(Mode.PREFERRED, 2), (Mode.ONLINE, 1), (Mode.UNCLEAN, 1)])
def test_only_a_preferred_election_replaces_a_healthy_leader(mode: Mode, leader: int) -> None:
    """G20."""
    before = Registration((2, 1, 3), (2, 1, 3), 1)
    assert leader == elect(before, Candidates((2, 1, 3), (), {1, 2}.__contains__), mode).leader


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(Mode.ONLINE, Election(-1, Outcome.LEADERLESS)), (Mode.UNCLEAN, Election(2, Outcome.OUT_OF_SYNC))],
)
def test_only_an_unclean_election_reaches_outside_the_isr(mode: Mode, expected: Election) -> None:
    """G21."""
    before = Registration((2, 1, 3), (3,), 3)
    assert expected == elect(before, Candidates((3,), (), {1, 2}.__contains__), mode)


def test_an_unclean_winner_is_alone_and_recovering() -> None:
    before = Registration((2, 1, 3), (), -1, elr=(3,), last_known_elr=(3,))
    after = step(before, target((), live={1, 2}, mode=Mode.UNCLEAN))
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (2, (2,), (), ())
    assert after.leader_recovery_state == RECOVERING


def test_without_elr_the_last_member_stays_while_nobody_leads() -> None:
    after = step(Registration((1, 2), (1,), 1), target((), live=set(), elr=False))
    assert (after.leader, after.isr, after.leader_epoch) == (-1, (1,), 1)


def test_a_step_without_a_difference_is_none() -> None:
    before = Registration((1, 2), (1, 2), 1)
    assert build(before, target((1, 2), live={1, 2}, min_isr=1)) is None


def move_away_and_back(it: Any) -> None:
    """Partition 1 moves to broker 1 alone, then back to 1 and 2; broker 1 dies before 2 has anything."""
    _, key = it.topic("t", [(1, 2, 3), (1, 2, 3)], min_isr=2)
    it.write(key, 10)
    it.run(it.cluster.now + 1_000)
    it.cluster.admin.alter_partition_reassignments({key: (1,)})
    it.run(it.cluster.now + 1_000)
    it.hold(1, 2)
    it.cluster.admin.alter_partition_reassignments({key: (1, 2)})
    it.run(it.cluster.now + 1_000)
    it.cluster.kill(1)
    it.run(it.cluster.now + 15_000)


def test_a_replica_that_was_moved_away_and_comes_back_empty_is_still_eligible_as_in_kafka(lab: Any) -> None:
    """A flaw of Kafka 4.3.1: broker 2 would win a clean election with an empty log. The watch stops it before."""
    with pytest.raises(AssertionError, match="LeaderCandidateCompleteness"):
        move_away_and_back(lab())


def test_were_dropped_replicas_forgotten_nobody_would_lead_and_nothing_would_be_lost(lab: Any) -> None:
    it = lab(switches=Switches(elr_forgets_dropped_replicas=True))
    move_away_and_back(it)
    state = it.state(it.key("t", 1))
    assert (state.leader, state.isr, state.elr) == (-1, (), (1,))
