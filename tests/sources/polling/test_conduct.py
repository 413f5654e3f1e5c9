"""Conduct of single listeners, and what the brokers' lists of each other say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.sources.polling.inference.conduct import ListenerConduct, Listeners
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met, Presence
from tests.sources.polling.small_cluster import SECOND, ids

BROKERS = ids(1, 2, 3, 4, 5)


def met(broker: int, asked: float, ended: float, how: Meeting = Meeting.ANSWERED, lists: set[int] | None = None) -> Met:
    content = Presence(None, frozenset(ids(*lists)), None) if lists is not None else None
    question = BrokerQuestion(Ask.PRESENCE, BrokerId(broker))
    return Met(question, Micros(round(asked * SECOND)), Micros(round(ended * SECOND)), how, 1, content)


def conduct(*mets: Met) -> ListenerConduct:
    listener = ListenerConduct()
    for each in mets:
        listener.meet(each)
    return listener


def test_a_slow_answer_is_no_absence() -> None:
    listener = conduct(met(1, 0, 0.1), met(1, 1, 2, Meeting.SILENT), met(1, 1, 2.1), met(1, 3, 3.1))
    assert not listener.absences


def test_a_connection_that_was_closed_for_idleness_and_is_open_again_is_no_absence() -> None:
    listener = conduct(met(1, 0, 0.1), met(1, 1, 1, Meeting.CLOSED), met(1, 1, 1.2))
    assert not listener.absences


def test_an_absence_lasts_from_the_last_answer_to_the_next_one() -> None:
    listener = conduct(
        met(1, 0, 0.1), met(1, 1, 1.01, Meeting.CLOSED), met(1, 1.02, 1.02, Meeting.REFUSED), met(1, 9, 9.2)
    )
    (absence,) = listener.absences
    assert (absence.last_answer, absence.ended_at, absence.until) == (100_000, 1_010_000, 9_200_000)
    assert absence.is_refused
    assert not listener.is_absent


def test_what_another_node_answers_says_nothing() -> None:
    assert not conduct(met(1, 0, 0.1), met(1, 1, 1.1, Meeting.WRONG_NODE)).absences


def lists_of(*votes: tuple[int, set[int]], at: float = 10) -> Listeners:
    """Give the lists of brokers after all of them listed each other."""
    listeners = Listeners()
    for broker in BROKERS:
        listeners.meet(met(broker, at - 1, at - 0.99, lists=set(BROKERS)))
    for broker, listed in votes:
        listeners.meet(met(broker, at, at + 0.01, lists=listed))
    return listeners


def test_a_broker_that_repeats_what_it_saw_before_it_was_cut_off_has_no_vote() -> None:
    others = {1, 2, 3, 4}
    listeners = lists_of((1, others), (2, others), (3, others), (4, others))
    assert listeners.is_listed(BrokerId(5)) is False
    without_4 = {1, 2, 3}
    for second in range(12, 16):
        for voter, listed in ((1, without_4), (2, without_4), (3, without_4), (5, set(BROKERS))):
            listeners.meet(met(voter, second, second + 0.01, lists=listed))
    assert listeners.is_listed(BrokerId(4)) is False
    assert listeners.is_listed(BrokerId(5)) is False


def test_a_broker_that_is_cut_off_does_not_unlist_the_others() -> None:
    listeners = lists_of((5, {5}))
    assert all(listeners.is_listed(broker) for broker in BROKERS)


def test_of_two_brokers_the_one_that_is_listed_decides() -> None:
    listeners = Listeners()
    for broker in (1, 2):
        listeners.meet(met(broker, 9, 9.01, lists={1, 2}))
    listeners.meet(met(1, 10, 10.01, lists={1}))
    assert listeners.is_listed(BrokerId(2)) is False
    listeners.meet(met(2, 11, 11.01, lists={1, 2}))
    assert listeners.is_listed(BrokerId(2)) is False


def test_lists_from_before_a_broker_was_new_do_not_unlist_it() -> None:
    """A cluster is expanded by several brokers at once, and one of the others is the first to list them."""
    listeners = lists_of()
    for second, new in ((10, {6}), (11, {6, 7})):
        assert listeners.meet(met(1, second, second + 0.01, lists={*BROKERS, *new})) == []
    assert listeners.is_listed(BrokerId(6))


@given(st.sets(st.sampled_from(BROKERS[:4]), max_size=1))
def test_a_single_voter_of_five_unlists_no_broker(dissenting: set[BrokerId]) -> None:
    listeners = lists_of(*((voter, {1, 2, 3, 4}) for voter in dissenting))
    assert listeners.is_listed(BROKERS[4])


def test_brokers_that_share_an_address_are_not_trusted() -> None:
    listeners = Listeners()
    listeners.at({BrokerId(1): ("lb", 1), BrokerId(2): ("lb", 1), BrokerId(3): ("b3", 1)})
    assert [listeners.is_trusted(broker) for broker in BROKERS[:3]] == [False, False, True]
