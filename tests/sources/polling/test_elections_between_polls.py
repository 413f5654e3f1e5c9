"""Elections between two answers: of a replica that cannot have caught up, of one that can have, and of none."""

from __future__ import annotations

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
from streaming.sources.polling.inference.elections import SeenLogEnds
from streaming.sources.polling.inference.fates import Step
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting
from streaming.sources.polling.view import ClusterView
from tests.sources.polling.small_cluster import TOPIC, SmallCluster, ids, part


def one(isr: tuple[int, ...], leader: int, epoch: int, **more: tuple[int, ...]) -> SmallCluster:
    """Give a cluster with one partition."""
    return SmallCluster({0: part((1, 2, 3), isr, leader, epoch, **more)})


def last_cause(cluster: SmallCluster) -> tuple[Cause | None, Evidence | None]:
    step = cluster.steps()[-1]
    return step.cause, step.evidence


def test_a_leader_from_outside_after_a_time_without_leader_was_elected_uncleanly() -> None:
    cluster = one((), -1, 5)
    cluster.becomes(12, 0, part((1, 2, 3), (2,), 2, 6))
    cluster.play(20)
    assert last_cause(cluster) == (Cause.UNCLEAN_ELECTION, Evidence.INFERRED)


def test_an_eligible_leader_replica_is_no_unclean_leader() -> None:
    cluster = one((), -1, 5, elr=(2,))
    cluster.becomes(12, 0, part((1, 2, 3), (2,), 2, 6))
    cluster.play(20)
    assert last_cause(cluster) == (Cause.ELR_ELECTION, Evidence.INFERRED)


def test_the_last_of_the_isr_that_is_back_is_no_unclean_leader() -> None:
    """Before Kafka 4.0 the last replica stays in the ISR of a partition without a leader."""
    cluster = one((2,), -1, 5)
    cluster.becomes(12, 0, part((1, 2, 3), (2,), 2, 6))
    cluster.play(20)
    assert last_cause(cluster) == (Cause.UNFENCED, Evidence.INFERRED)


def test_the_last_known_leader_may_have_lost_what_it_had_not_flushed() -> None:
    cluster = one((), -1, 5, last_known_elr=(2,))
    cluster.becomes(12, 0, part((1, 2, 3), (2,), 2, 6))
    cluster.play(20)
    assert last_cause(cluster) == (Cause.LAST_KNOWN_LEADER, Evidence.AMBIGUOUS)


def test_a_follower_that_comes_back_after_its_leader_has_gone_cannot_have_caught_up() -> None:
    cluster = one((1,), 1, 5)
    cluster.how[3] = cluster.how[2] = Meeting.REFUSED
    cluster.listed = {1, 2}
    cluster.meets(11, 1, Meeting.REFUSED)
    cluster.meets(19, 2, Meeting.ANSWERED)
    cluster.becomes(19.5, 0, part((1, 2, 3), (2,), 2, 6))
    cluster.play(30)
    assert last_cause(cluster) == (Cause.UNCLEAN_ELECTION, Evidence.INFERRED)
    assert "did not answer meanwhile" in (cluster.steps()[-1].because or "")


def test_the_end_of_the_former_epoch_below_what_was_seen_shows_that_records_are_missing() -> None:
    cluster = one((1,), 1, 5)
    cluster.ends[1, 0] = 120
    cluster.epoch_ends[0, 5] = 100
    cluster.becomes(12, 0, part((1, 2, 3), (2,), 2, 6))
    cluster.play(20)
    assert [each.partitions for _, each in cluster.questions(Ask.EPOCH_ENDS)] == [((TOPIC, 0, 5),)]
    assert last_cause(cluster) == (Cause.UNCLEAN_ELECTION, Evidence.INFERRED)
    assert "ends at 100 there, and 120 was seen" in (cluster.steps()[-1].because or "")


def test_a_leader_that_has_all_that_was_seen_has_caught_up() -> None:
    """As in a rolling restart: it joined the ISR and was elected between two answers."""
    cluster = one((1,), 1, 5)
    cluster.ends[1, 0] = 120
    cluster.epoch_ends[0, 5] = 125
    cluster.becomes(12, 0, part((1, 2, 3), (2, 3), 2, 6))
    cluster.play(20)
    cause, _ = last_cause(cluster)
    assert cause is not Cause.UNCLEAN_ELECTION
    assert "has all that was seen" in (cluster.steps()[-1].because or "")


def test_a_leader_of_which_nothing_more_is_known_is_a_warning_in_words() -> None:
    cluster = one((1,), 1, 5)
    cluster.becomes(12, 0, part((1, 2, 3), (2, 3), 2, 6))
    cluster.play(20)
    cause, _ = last_cause(cluster)
    assert cause is not Cause.UNCLEAN_ELECTION
    assert "it can have caught up, or lack acknowledged records" in (cluster.steps()[-1].because or "")


def test_an_epoch_that_grew_alone_is_told_without_a_removal() -> None:
    cluster = one((1, 2, 3), 1, 5)
    cluster.becomes(12, 0, part((1, 2, 3), (1, 2, 3), 1, 7))
    cluster.play(20)
    assert last_cause(cluster) == (Cause.UNKNOWN, Evidence.INFERRED)


def test_only_leaders_that_are_alone_in_sync_are_asked_where_their_logs_end() -> None:
    cluster = SmallCluster({0: part((1, 2, 3), (1,), 1), 1: part((1, 2, 3), (2, 3), 2), 2: part((1,), (1,), 1)})
    cluster.play(12)
    asked = {(each.broker, each.partitions) for _, each in cluster.questions(Ask.LOG_ENDS)}
    assert asked == {(ids(1)[0], ((TOPIC, 0, -1),))}


def test_a_broker_that_is_cut_off_does_not_undo_an_election_nor_make_one() -> None:
    """It repeats the leaders of before for as long as it is cut off, and the others do not list it."""
    cluster = SmallCluster({0: part((1, 2, 3), (1, 2, 3), 1, 5)})
    before = dict(cluster.partitions)
    cluster.at(10, lambda: cluster.lists.update({1: {1, 2, 3}}))
    cluster.at(10, lambda: cluster.sees.update({1: before}))
    cluster.becomes(19, 0, part((1, 2, 3), (2, 3), 2, 6))
    cluster.unlisted(19, 1)
    cluster.at(24, lambda: setattr(cluster, "viewed_at", 1))
    cluster.play(60)
    assert Cause.UNCLEAN_ELECTION not in {each.cause for each in cluster.steps()}
    assert [each.leader for each in cluster.steps()] == [2]


def test_ends_of_deleted_topics_and_of_old_epochs_are_forgotten() -> None:
    now, later = (part((1, 2, 3), (1,), 1, epoch) for epoch in (500, 501))
    view = ClusterView(ClusterId("c"), 1, {BrokerId(1): ("b1", 9092)}, {TOPIC: {0: now}}, {TOPIC: TopicId("t")})
    ends = SeenLogEnds()
    asked = [(TOPIC, 1), (TOPIC, 499), ("gone", 499)]
    for topic, epoch in asked:
        ends.note_epoch_ends(BrokerQuestion(BrokerId(1), Ask.EPOCH_ENDS, ((topic, 0, epoch),)), {(topic, 0): 7})
    ends.forget_all_but(view)
    steps = [Step(topic, 0, now._replace(leader_epoch=epoch), later, Micros(0), Micros(1)) for topic, epoch in asked]
    assert [ends.epoch_end(step) for step in steps] == [None, 7, None]
