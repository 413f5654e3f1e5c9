"""The transition tables: broker life cycle, ISR proposals, session tracking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerEpoch, BrokerId, TopicId, TopicPartition
from streaming.contracts.records import RECOVERED, RECOVERING
from streaming.model.constants import Error, Switches
from streaming.model.controller.alter_partition import Proposal, verdict
from streaming.model.controller.membership import BrokerState, Question, Sessions, next_state, state_of
from streaming.model.messages.registrations import BrokerRegistration, PartitionRegistration
from streaming.model.messages.replication import AlterPartitionItem

KEY = TopicPartition(TopicId("t"), 0)
PARTITION = PartitionRegistration((1, 2, 3), (1, 2), 1, leader_epoch=4, partition_epoch=7)  # type: ignore[arg-type]
BROKERS = {BrokerId(n): BrokerRegistration(BrokerEpoch(10 * n), f"i{n}", fenced=False) for n in (1, 2, 3)}


@given(st.builds(Question, st.sampled_from(BrokerState), *[st.booleans()] * 5))
def test_every_heartbeat_has_an_answer_unless_the_broker_was_told_to_go(question: Question) -> None:
    if question.state is BrokerState.SHUTDOWN_NOW:
        with pytest.raises(AssertionError):
            next_state(question)
    else:
        assert isinstance(next_state(question), BrokerState)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (Question(BrokerState.FENCED, False, False, True, False, True), BrokerState.UNFENCED),
        (Question(BrokerState.FENCED, False, False, False, False, True), BrokerState.FENCED),
        (Question(BrokerState.FENCED, True, False, True, False, True), BrokerState.SHUTDOWN_NOW),
        (Question(BrokerState.UNFENCED, False, True, True, True, True), BrokerState.FENCED),
        (Question(BrokerState.UNFENCED, True, False, True, True, True), BrokerState.CONTROLLED_SHUTDOWN),
        (Question(BrokerState.UNFENCED, True, False, True, False, True), BrokerState.SHUTDOWN_NOW),
        (Question(BrokerState.CONTROLLED_SHUTDOWN, True, False, True, True, True), BrokerState.CONTROLLED_SHUTDOWN),
        (Question(BrokerState.CONTROLLED_SHUTDOWN, True, False, True, False, False), BrokerState.CONTROLLED_SHUTDOWN),
        (Question(BrokerState.CONTROLLED_SHUTDOWN, True, False, True, False, True), BrokerState.SHUTDOWN_NOW),
    ],
)
def test_the_broker_life_cycle(question: Question, expected: BrokerState) -> None:
    assert next_state(question) is expected


def test_fenced_outweighs_shutting_down() -> None:
    registration = BrokerRegistration(BrokerEpoch(1), "i", fenced=True, in_controlled_shutdown=True)
    assert state_of(registration) is BrokerState.FENCED


def test_a_session_ends_after_its_timeout_oldest_contact_first() -> None:
    sessions = Sessions(9_000)
    for broker, now in ((1, 0), (2, 100), (1, 200)):
        sessions.touch(BrokerId(broker), now)
    assert sessions.pop_expired(9_100) is None
    assert sessions.pop_expired(9_300) == 2
    assert sessions.pop_expired(9_300) == 1
    assert sessions.pop_expired(9_300) is None


def item(
    isr: tuple[tuple[int, int], ...] = ((1, 10), (2, 20), (3, 30)), leader_epoch: int = 4, partition_epoch: int = 7
) -> AlterPartitionItem:
    return AlterPartitionItem(KEY, leader_epoch, partition_epoch, isr, Cause.EXPAND)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sender", "proposed", "expected"),
    [
        (1, item(), Error.NONE),
        (1, item(((1, 10), (2, -1), (3, -1))), Error.NONE),
        (1, item(leader_epoch=5), Error.NOT_CONTROLLER),
        (1, item(partition_epoch=8), Error.NOT_CONTROLLER),
        (1, item(leader_epoch=3), Error.FENCED_LEADER_EPOCH),
        (2, item(), Error.INVALID_REQUEST),
        (1, item(partition_epoch=6), Error.INVALID_UPDATE_VERSION),
        (1, item(((1, 10), (4, 40))), Error.INVALID_REQUEST),
        (1, item(((1, 10), (2, 20), (2, 20))), Error.INVALID_REQUEST),
        (1, item(((2, 20),)), Error.INVALID_REQUEST),
        (1, item(((1, 10), (3, 29))), Error.INELIGIBLE_REPLICA),
    ],
)
def test_the_checks_of_a_proposal(sender: int, proposed: AlterPartitionItem, expected: Error) -> None:
    assert verdict(Proposal(BrokerId(sender), proposed, PARTITION, BROKERS)) is expected


@pytest.mark.parametrize("change", [{"fenced": True}, {"in_controlled_shutdown": True}])
def test_no_inactive_broker_joins(change: dict[str, bool]) -> None:
    brokers = BROKERS | {BrokerId(3): BROKERS[BrokerId(3)]._replace(**change)}
    assert verdict(Proposal(BrokerId(1), item(), PARTITION, brokers)) is Error.INELIGIBLE_REPLICA


@pytest.mark.parametrize(
    ("members", "state_before", "expected"),
    [(1, RECOVERING, Error.NONE), (2, RECOVERING, Error.INVALID_REQUEST), (1, RECOVERED, Error.INVALID_REQUEST)],
)
def test_a_leader_in_recovery_is_alone_and_does_not_fall_back_into_it(
    members: int, state_before: int, expected: Error
) -> None:
    proposed = item(((1, 10), (2, 20))[:members])._replace(leader_recovery_state=RECOVERING)
    partition = PARTITION._replace(leader_recovery_state=state_before)
    assert verdict(Proposal(BrokerId(1), proposed, partition, BROKERS)) is expected


@pytest.mark.parametrize(
    ("switch", "proposed", "fenced"),
    [
        ("partition_epoch_check", item(partition_epoch=6), False),
        ("broker_epoch_check", item(((1, 10), (3, 29))), False),
        ("eligibility_check", item(), True),
    ],
)
def test_each_check_can_be_switched_off(switch: str, proposed: AlterPartitionItem, *, fenced: bool) -> None:
    brokers = BROKERS | {BrokerId(3): BROKERS[BrokerId(3)]._replace(fenced=fenced)}
    proposal = Proposal(BrokerId(1), proposed, PARTITION, brokers)
    assert verdict(proposal) is not Error.NONE
    assert verdict(proposal._replace(switches=Switches(**{switch: False}))) is Error.NONE


def test_the_order_of_checks_decides_which_error_is_told() -> None:
    """An old leader epoch and an old partition epoch: the leader learns that it is deposed, not that it is late."""
    proposed = item(leader_epoch=3, partition_epoch=6)
    assert verdict(Proposal(BrokerId(2), proposed, PARTITION, BROKERS)) is Error.FENCED_LEADER_EPOCH
