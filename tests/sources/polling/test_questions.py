"""Which questions are asked, and when: few at rest, more while something happens, never beyond the budget."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.observations import Heartbeat, SnapshotBegin
from streaming.sources.polling.inference.conduct import Listeners
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met
from streaming.sources.polling.inference.schedule import Intervals, Schedule
from streaming.sources.polling.view import ClusterView
from tests.sources.polling.small_cluster import SECOND, lose, of_three, part, without

LARGE = Intervals(cheap=0)
"""As of a cluster whose partitions are too many to be asked for each second."""


def test_at_rest_each_broker_is_asked_once_a_second_whether_it_is_there() -> None:
    cluster = of_three()
    cluster.intervals = LARGE
    cluster.play(60)
    for broker in (1, 2, 3):
        asked = [at for at, each in cluster.questions(Ask.PRESENCE, 30, 60) if each.broker == broker]
        assert 29 <= len(asked) <= 31
    assert not cluster.questions(Ask.PARTITIONS, 30)
    assert 14 <= len(cluster.questions(Ask.QUORUM, 30)) <= 16


def test_a_small_cluster_is_asked_for_all_partitions_each_second_one_broker_at_a_time() -> None:
    cluster = of_three()
    cluster.play(60)
    asked = cluster.questions(Ask.PARTITIONS, 30)
    assert 29 <= len(asked) <= 31
    assert {each.broker for _, each in asked} == {1, 2, 3}


def test_partitions_are_asked_for_at_once_when_a_connection_ends_and_each_second_afterwards() -> None:
    cluster = of_three()
    cluster.intervals = LARGE
    cluster.meets(40.2, 3, Meeting.REFUSED)
    lose(cluster, 49.2, 3, successor=1)
    cluster.play(90)
    times = [at for at, _ in cluster.questions(Ask.PARTITIONS, 30)]
    noticed = min(at for at, each in cluster.questions(Ask.PRESENCE, 40.2) if each.broker == 3)
    assert times[0] - noticed < 0.2
    assert max(after - at for at, after in pairwise(times)) < 1.2
    assert times[-1] < 49.2 + 1 + 15 + 1.2, "the end of what happened is the end of it"


def test_a_broker_is_asked_at_most_twice_a_second_beyond_its_presence() -> None:
    cluster = of_three()
    cluster.meets(30.2, 3, Meeting.REFUSED)
    lose(cluster, 39.2, 3, successor=1)
    cluster.play(60)
    seconds = Counter((int(at), each.broker) for at, each in cluster.asked if each.ask is not Ask.PRESENCE)
    assert max(seconds.values()) <= 3
    assert sum(seconds.values()) / 60 / 3 < 1


def test_a_controller_that_does_not_answer_keeps_two_brokers_waiting_at_most() -> None:
    cluster = of_three()
    cluster.at(20, lambda: setattr(cluster, "quorum", None))
    cluster.play(60)
    assert len(cluster.questions(Ask.QUORUM, 20)) <= 3


def test_a_broker_that_hangs_is_noticed_though_it_was_asked_for_the_quorum() -> None:
    cluster = of_three()
    cluster.meets(20.02, 1, Meeting.SILENT)
    lose(cluster, 29.2, 1, successor=2)
    cluster.play(40)
    (step,) = cluster.steps()
    assert "had not answered" in (step.because or "")


def test_a_step_is_held_for_two_seconds_at_most_and_nothing_overtakes_it() -> None:
    cluster = of_three()
    cluster.becomes(12, 0, without(cluster.partitions[0], 3))
    cluster.play(60)
    for at, each in cluster.seen:
        assert at - (each.occurred_not_after / SECOND - 100) <= 2.2
    ends = [each.occurred_not_after for _, each in cluster.seen]
    assert ends == sorted(ends)
    assert isinstance(cluster.seen[-1][1], Heartbeat | SnapshotBegin)


def test_the_window_of_a_step_is_as_small_as_the_questions_were_frequent() -> None:
    cluster = of_three()
    cluster.meets(12.3, 3, Meeting.REFUSED)
    lose(cluster, 21.2, 3, successor=1)
    cluster.play(30)
    (step,) = cluster.steps()
    assert step.occurred_not_after - step.occurred_not_before < 1.3 * SECOND
    assert step.occurred_not_before <= (100 + 21.2) * SECOND <= step.occurred_not_after


# Budgets of large clusters.


def view_of(topics: int, partitions: int, brokers: int) -> ClusterView:
    parts = {
        f"t{topic}": {
            number: part(tuple((topic + number + k) % brokers + 1 for k in range(3)), (1,), 1)
            for number in range(partitions)
        }
        for topic in range(topics)
    }
    return ClusterView(
        cluster_id=ClusterId("c"),
        answered_by=1,
        brokers={BrokerId(each): (f"b{each}", 9092) for each in range(1, brokers + 1)},
        topics=parts,
        topic_ids={name: TopicId(name) for name in parts},
    )


@settings(max_examples=20, deadline=None)
@given(
    topics=st.integers(1, 40),
    partitions=st.integers(1, 200),
    brokers=st.integers(3, 12),
    budget=st.integers(2_000, 200_000),
)
def test_the_answers_of_a_broker_stay_within_its_bytes_but_for_one_topic(
    topics: int, partitions: int, brokers: int, budget: int
) -> None:
    intervals, view = Intervals(bytes_per_question=budget), view_of(topics, partitions, brokers)
    schedule = Schedule(intervals, Listeners())
    schedule.hasten(Micros(0))
    size_of_topic = partitions * (60 + 12 * 3)
    asked = [each for each in schedule.questions(Micros(0), view) if each.ask is Ask.PARTITIONS]
    for question in asked:
        assert len(question.partitions) * size_of_topic <= max(budget, size_of_topic)
    names = [name for question in asked for name, _, _ in question.partitions]
    assert len(names) == len(set(names)), "no topic is asked for twice"


def test_what_has_no_leader_is_asked_for_first() -> None:
    view = view_of(5, 2, 3)
    healthy = {number: part((1, 2, 3), (1, 2, 3), 1) for number in range(2)}
    view.topics.update(dict.fromkeys(("t0", "t1", "t2", "t4"), healthy))
    view.topics["t3"] = {0: part((1, 2, 3), (), -1)}
    view.topics["t1"] = {0: part((1, 2, 3), (1, 2), 1)}
    schedule = Schedule(Intervals(bytes_per_question=100_000), Listeners())
    schedule.hasten(Micros(0))
    (question, *_) = [each for each in schedule.questions(Micros(0), view) if each.ask is Ask.PARTITIONS]
    assert [name for name, _, _ in question.partitions][:2] == ["t3", "t1"]


def test_a_question_whose_end_was_never_told_does_not_silence_a_broker_for_ever() -> None:
    view, schedule = view_of(1, 1, 3), Schedule(Intervals(), Listeners())
    first = schedule.questions(Micros(0), view)
    assert BrokerQuestion(Ask.PRESENCE, BrokerId(2)) in first
    assert BrokerQuestion(Ask.PRESENCE, BrokerId(2)) not in schedule.questions(Micros(2 * SECOND), view)
    assert BrokerQuestion(Ask.PRESENCE, BrokerId(2)) in schedule.questions(Micros(45 * SECOND), view)


def test_a_question_is_asked_again_when_it_has_ended() -> None:
    view, schedule = view_of(1, 1, 3), Schedule(Intervals(), Listeners())
    (question, *_) = schedule.questions(Micros(0), view)
    schedule.meet(Met(question, Micros(0), Micros(5), Meeting.CLOSED, 1))
    assert question in schedule.questions(Micros(2 * SECOND), view)
