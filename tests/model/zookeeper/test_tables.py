"""Partition states and the strategies of elections, row by row."""

from __future__ import annotations

import pytest

from streaming.contracts.identifiers import BrokerId
from streaming.model.nodes.zookeeper import election
from streaming.model.nodes.zookeeper.layout import PartitionState, enter

NONE, NEW, ONLINE, OFFLINE = PartitionState


@pytest.mark.parametrize(
    ("state", "from_there"),
    [(NONE, {NEW}), (NEW, {ONLINE, OFFLINE}), (ONLINE, {ONLINE, OFFLINE}), (OFFLINE, {ONLINE, OFFLINE, NONE})],
)
def test_a_partition_takes_only_the_states_of_the_table(state: PartitionState, from_there: set[PartitionState]) -> None:
    for following in PartitionState:
        if following in from_there:
            assert enter(state, following) is following
        else:
            with pytest.raises(AssertionError):
                enter(state, following)


def question(
    isr: tuple[int, ...], live: tuple[int, ...], leaving: tuple[int, ...] = (), *, unclean: bool = False
) -> election.Question:
    return election.Question(
        replicas=tuple(map(BrokerId, (1, 2, 3))),
        isr=tuple(map(BrokerId, isr)),
        is_live=lambda broker: broker in live and broker not in leaving,
        is_leaving=leaving.__contains__,
        unclean=unclean,
    )


@pytest.mark.parametrize(
    ("strategy", "asked", "leader", "isr"),
    [
        (election.offline, question((3, 2, 1), (2, 3)), 2, (3, 2)),
        (election.offline, question((1,), (2, 3)), None, ()),
        (election.offline, question((1,), (2, 3), unclean=True), 2, (2,)),
        (election.offline, question((1,), (), unclean=True), None, ()),
        (election.preferred, question((2, 1), (1, 2, 3)), 1, (2, 1)),
        (election.preferred, question((2, 3), (1, 2, 3)), None, ()),
        (election.preferred, question((1, 2), (2, 3)), None, ()),
        (election.controlled_shutdown, question((1, 2, 3), (1, 2, 3), (1,)), 2, (2, 3)),
        (election.controlled_shutdown, question((1, 2, 3), (1, 3), (1,)), 3, (2, 3)),
        (election.controlled_shutdown, question((1,), (1, 2), (1,)), None, ()),
    ],
)
def test_each_strategy_finds_its_leader_and_isr(
    strategy: election.Strategy, asked: election.Question, leader: int | None, isr: tuple[int, ...]
) -> None:
    elected = strategy(asked)
    assert (leader, isr) == ((None, ()) if elected is None else (elected.leader, elected.isr))


def test_only_a_leader_from_outside_the_isr_is_unclean() -> None:
    outcomes = [election.offline(question(isr, (2, 3), unclean=True)) for isr in ((2,), (1,))]
    assert [it is not None and it.is_unclean for it in outcomes] == [False, True]
