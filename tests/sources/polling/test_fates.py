"""What polling infers of a broker that left ISRs: each test states what a real cluster does, as it was recorded."""

from __future__ import annotations

import pytest

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import ControllerObserved, Heartbeat, SnapshotBegin
from streaming.sources.polling.inference.inquiry import Meeting, QuorumLeader
from streaming.sources.polling.inference.schedule import Intervals
from tests.sources.polling.small_cluster import LED, SECOND, SmallCluster, lose, of_three, part, rejoin, without


def causes(cluster: SmallCluster, number: int = 0) -> list[Cause | None]:
    return [each.cause for each in cluster.steps(number)]


def test_a_killed_broker_refuses_and_leaves_its_isrs_a_session_later() -> None:
    cluster = of_three()
    cluster.meets(12.3, 3, Meeting.REFUSED)
    lose(cluster, 21.2, 3, successor=1)
    cluster.play(30)
    assert causes(cluster) == causes(cluster, 2) == [Cause.FENCED]
    (step,) = cluster.steps(2)
    assert step.evidence is Evidence.INFERRED
    assert "refused connections for at least 8" in (step.because or "")
    assert [each.fenced for each in cluster.of_broker(3)][:1] == [True]
    assert not any(each.in_controlled_shutdown for each in cluster.of_broker(3))


def test_a_broker_that_gives_up_its_leaders_before_it_closes_was_stopped_cleanly() -> None:
    cluster = of_three()
    lose(cluster, 12.3, 3, successor=1, is_fenced=False)
    cluster.unlisted(13.4, 3)
    cluster.meets(13.5, 3, Meeting.REFUSED)
    cluster.play(30)
    assert causes(cluster) == causes(cluster, 2) == [Cause.CONTROLLED_SHUTDOWN]
    assert cluster.of_broker(3)[0].in_controlled_shutdown
    assert cluster.of_broker(3)[-1].fenced


def test_a_broker_that_leads_nothing_and_closes_when_it_is_fenced_was_stopped_cleanly() -> None:
    cluster = of_three(leaders=(1, 2))
    lose(cluster, 12.3, 3, successor=1)
    cluster.meets(12.6, 3, Meeting.REFUSED)
    cluster.play(30)
    assert causes(cluster) == [Cause.CONTROLLED_SHUTDOWN]


def test_a_frozen_broker_is_silent_and_lost_when_its_session_ends() -> None:
    cluster = of_three()
    cluster.meets(12.3, 3, Meeting.SILENT)
    lose(cluster, 21.2, 3, successor=1)
    cluster.play(30)
    assert causes(cluster) == [Cause.FENCED]
    assert "had not answered for at least 8" in (cluster.steps()[0].because or "")


def test_a_frozen_broker_that_its_leader_removes_first_lags_until_it_is_fenced() -> None:
    cluster = of_three()
    cluster.meets(12.3, 3, Meeting.SILENT)
    cluster.becomes(16, 0, without(cluster.partitions[0], 3))
    lose(cluster, 21.3, 3, successor=1)
    cluster.play(30)
    assert causes(cluster) == [Cause.LAG]
    assert causes(cluster, 2) == [Cause.FENCED]


def test_a_broker_that_answers_and_is_not_listed_is_cut_off_from_the_controllers() -> None:
    cluster = of_three()
    cluster.at(12, lambda: cluster.lists.update({3: {1, 2, 3}}))
    cluster.at(12, lambda: cluster.sees.update({3: dict(cluster.partitions)}))
    lose(cluster, 21.2, 3, successor=1)
    cluster.play(40)
    assert causes(cluster) == causes(cluster, 2) == [Cause.FENCED], "what it repeats itself is old"
    assert "the others do not list it" in (cluster.steps()[0].because or "")


def test_a_listed_broker_that_answers_was_removed_by_its_leader() -> None:
    cluster = of_three()
    cluster.becomes(12, 0, without(cluster.partitions[0], 3))
    cluster.play(20)
    assert causes(cluster) == [Cause.LAG]
    assert not cluster.of_broker(3)


def test_a_leader_that_was_silent_just_before_it_removed_followers_stood_still() -> None:
    cluster = of_three()
    cluster.intervals = Intervals(lag=10 * SECOND, session=30 * SECOND)
    cluster.meets(12, 1, Meeting.SILENT)
    cluster.meets(22.5, 1, Meeting.ANSWERED)
    cluster.becomes(22.6, 0, without(cluster.partitions[0], 2, 3))
    cluster.play(30)
    assert causes(cluster) == [Cause.LEADER_STALL]


def test_a_broker_that_only_the_poller_lost_and_that_goes_on_to_change_its_isrs_runs() -> None:
    """A firewall closes its connections, and lets none through; its followers lost it, too, and it lost them."""
    cluster = of_three()
    cluster.meets(12, 1, Meeting.CLOSED)
    cluster.meets(12.5, 1, Meeting.SILENT)
    for number, view in cluster.partitions.items():
        cluster.becomes(26, number, without(view, 2, 3) if view.leader == 1 else without(view, 1))
    cluster.play(40)
    assert {cause for number in cluster.partitions for cause in causes(cluster, number)} == {Cause.LAG}


def test_a_replica_that_is_offline_on_a_listed_broker_was_on_a_failed_disk() -> None:
    cluster = of_three()
    cluster.becomes(12, 0, without(cluster.partitions[0], 3)._replace(offline=(3,)))
    cluster.becomes(12, 2, without(cluster.partitions[2], 3, leader=1)._replace(offline=(3,)))
    cluster.play(20)
    assert causes(cluster) == causes(cluster, 2) == [Cause.DIR_FAILURE]


def test_a_broker_that_is_cut_off_and_listed_again_at_once_has_no_failed_disk() -> None:
    cluster = of_three()
    cluster.sees[3], cluster.lists[3] = dict(cluster.partitions), {1, 2, 3}
    for number, leader in ((0, 1), (1, 2), (2, 1)):
        cluster.becomes(20.7, number, without(cluster.partitions[number], 3, leader=leader)._replace(offline=(3,)))
    cluster.unlisted(20.7, 3)
    cluster.at(21.9, lambda: (cluster.sees.clear(), cluster.lists.clear()))
    rejoin(cluster, 21.9, 3)
    cluster.play(35)
    assert [causes(cluster, number)[0] for number in (0, 1, 2)] == [Cause.FENCED] * 3


def test_the_replicas_of_a_silent_broker_are_offline_with_it_and_no_disk_failed() -> None:
    """The brokers that are cut off together list each other; the one that is not says that broker 3 is not alive."""
    cluster = of_three()
    cluster.at(12, lambda: cluster.lists.update({2: {1, 2, 3}}))
    cluster.meets(12, 3, Meeting.SILENT)
    cluster.becomes(20.5, 0, without(cluster.partitions[0], 3)._replace(offline=(3,)))
    cluster.unlisted(20.5, 3)
    cluster.play(40)
    assert causes(cluster) == [Cause.FENCED]
    assert [each.fenced for each in cluster.of_broker(3)][:1] == [True]


def test_a_broker_that_is_killed_and_started_at_once_is_lost_and_back() -> None:
    """It leaves its ISRs and registers in one batch when its old session has expired, and no record fences it."""
    cluster = of_three()
    cluster.meets(12.3, 3, Meeting.REFUSED)
    lose(cluster, 21.2, 3, successor=1, is_fenced=False)
    cluster.meets(21.6, 3, Meeting.ANSWERED)
    cluster.play(30)
    assert causes(cluster) == [Cause.FENCED]
    assert [each.fenced for each in cluster.of_broker(3)] == [True, False]


def test_a_broker_that_the_controller_fenced_for_a_moment_after_it_stood_still_is_back_at_once() -> None:
    cluster = of_three()
    cluster.at(10.1, lambda: setattr(cluster, "quorum", None))
    lose(cluster, 25.0, 3, successor=1, is_fenced=False)
    cluster.at(25.0, lambda: setattr(cluster, "quorum", QuorumLeader(100, 1)))
    rejoin(cluster, 25.3, 3)
    cluster.play(35)
    (stall,) = (each for _, each in cluster.seen if isinstance(each, ControllerObserved) and each.silent_since)
    assert stall.occurred_not_after - (stall.silent_since or 0) >= 14 * SECOND
    assert causes(cluster, 0)[:1] == [Cause.FENCED]
    assert [each.fenced for each in cluster.of_broker(3)] == [True, False]


@pytest.mark.parametrize("second", [11, 11.4, 11.9, 12.4, 12.9])
@pytest.mark.parametrize("broker", [1, 2, 3])
def test_a_broker_that_hangs_says_nothing_about_its_controller(broker: int, second: float) -> None:
    """The quorum is asked for through one of them, perhaps just when it hangs, and then through another one."""
    cluster = of_three()
    cluster.intervals = Intervals(session=Micros(6 * SECOND))
    cluster.meets(second, broker, Meeting.SILENT)
    lose(cluster, second + 6.5, broker, successor=1 if broker > 1 else 2)
    cluster.meets(36, broker, Meeting.ANSWERED)
    cluster.relisted(36.2, broker)
    cluster.play(60)
    assert not [each for each in cluster.seen if isinstance(each[1], ControllerObserved) and each[1].silent_since]


@pytest.mark.parametrize(("replicas", "cause"), [((3, 2, 1), Cause.FENCED), ((1, 2, 3), Cause.PREFERRED_ELECTION)])
def test_a_leader_that_answers_and_is_followed_by_other_than_the_first_replica_was_fenced_for_a_moment(
    replicas: tuple[int, ...], cause: Cause
) -> None:
    """It is back in the ISR before the next answer. Only the first replica is elected while the leader is in sync."""
    cluster = SmallCluster({0: part(replicas, (1, 2, 3), 3)})
    cluster.becomes(12, 0, part(replicas, (1, 2, 3), 1, epoch=1))
    cluster.play(20)
    assert causes(cluster)[0] is cause
    assert [each.fenced for each in cluster.of_broker(3)] == ([True, False] if cause is Cause.FENCED else [])


def test_a_broker_that_is_stopped_and_unregistered_is_not_merely_fenced() -> None:
    """Others list brokers that are fenced (KIP-1073), so one that is in neither list has been removed."""
    cluster = of_three()
    cluster.registered = {1, 2, 3}
    lose(cluster, 12, 3, successor=1)
    cluster.meets(12.4, 3, Meeting.REFUSED)
    cluster.at(20, lambda: (cluster.registered or set()).discard(3))
    cluster.at(40, lambda: (cluster.registered or set()).add(3))
    cluster.play(50)
    assert [(each.registered, each.fenced) for each in cluster.of_broker(3)][-2:] == [(False, True), (True, True)]


@pytest.mark.parametrize(
    ("quorum", "denied", "is_fresh"), [(None, 0, False), (QuorumLeader(100, 1), 0, True), (LED, 31, False)]
)
def test_what_one_broker_of_three_lists_is_old_where_the_quorum_is_silent_too(
    quorum: QuorumLeader | None, denied: int, *, is_fresh: bool
) -> None:
    """The poller is next to a broker that is cut off from the controllers, or the poller alone is cut off.

    Without the permission to ask for the quorum it is unknown which.
    """
    cluster = of_three()
    cluster.quorum_error = denied
    cluster.meets(12, 2, Meeting.SILENT)
    cluster.meets(12, 3, Meeting.SILENT)
    cluster.at(12, lambda: setattr(cluster, "quorum", quorum))
    cluster.play(70)
    newest = max(at for at, each in cluster.seen if isinstance(each, Heartbeat | SnapshotBegin))
    assert (newest > 60) is is_fresh
    assert is_fresh or newest < 12 + 2 * 9 + 5


def test_a_poller_that_is_cut_off_with_half_of_the_brokers_sees_no_change_meanwhile_and_dates_it_so() -> None:
    cluster = SmallCluster({0: part((1, 3), (1, 3), 1), 1: part((4, 2), (4, 2), 4)}, brokers=(1, 2, 3, 4))
    cluster.viewed_at = 1
    for here in (1, 2):
        cluster.sees[here], cluster.lists[here] = dict(cluster.partitions), {1, 2, 3, 4}
        lose(cluster, 20, here, successor=3)
    for silent in (3, 4):
        cluster.meets(10.5, silent, Meeting.SILENT)
        cluster.meets(60.5, silent, Meeting.ANSWERED)
    cluster.at(10.5, lambda: setattr(cluster, "quorum", None))
    cluster.at(60.5, lambda: (setattr(cluster, "quorum", QuorumLeader(100, 1)), setattr(cluster, "viewed_at", None)))
    cluster.at(60.5, lambda: (cluster.sees.clear(), cluster.lists.clear()))
    for here in (1, 2):
        cluster.relisted(60.6, here)
    cluster.play(80)
    silent_from = max(at for at, each in cluster.seen if at < 60 and isinstance(each, Heartbeat | SnapshotBegin))
    assert silent_from < 10.5 + 2 * 9 + 5
    for number in (0, 1):
        (step,) = cluster.steps(number)
        assert step.occurred_not_before <= (100 + 20) * SECOND < (100 + 60) * SECOND <= step.occurred_not_after
        assert step.cause is Cause.FENCED


def test_changes_show_that_a_broker_follows_the_controllers_where_these_may_not_be_asked_for() -> None:
    cluster = of_three()
    cluster.quorum_error = 31
    cluster.meets(12, 2, Meeting.SILENT)
    cluster.meets(12, 3, Meeting.SILENT)
    for second in range(20, 70, 10):
        cluster.becomes(second, 0, part((1, 2, 3), (1, 2, 3) if second % 20 else (1, 2), 1))
    cluster.play(70)
    newest = max(at for at, each in cluster.seen if isinstance(each, Heartbeat | SnapshotBegin))
    assert newest > 60


def test_two_of_five_brokers_that_only_the_poller_does_not_reach_cast_no_doubt_on_a_quiet_cluster() -> None:
    cluster = SmallCluster({0: part((1, 2, 3), (1, 2, 3), 1)}, brokers=(1, 2, 3, 4, 5))
    cluster.quorum_error = 31
    for broker in (4, 5):
        cluster.meets(12, broker, Meeting.SILENT)
    cluster.play(70)
    newest = max(at for at, each in cluster.seen if isinstance(each, Heartbeat | SnapshotBegin))
    assert newest > 60


def test_changes_after_a_doubt_are_not_dated_before_the_brokers_fell_silent() -> None:
    cluster = of_three()
    cluster.quorum_error = 31
    for broker in (2, 3):
        cluster.meets(60, broker, Meeting.SILENT)
        cluster.meets(100, broker, Meeting.ANSWERED)
    cluster.becomes(90, 0, without(cluster.partitions[0], 3))
    cluster.sees[1] = dict(cluster.partitions)
    cluster.at(100, cluster.sees.clear)
    cluster.play(110)
    (step,) = cluster.steps()
    assert (100 + 58) * SECOND < step.occurred_not_before < (100 + 61) * SECOND


def test_a_poller_that_starts_next_to_a_broker_that_is_cut_off_does_not_believe_it_for_long() -> None:
    cluster = of_three()
    cluster.quorum = None
    cluster.how[2] = cluster.how[3] = Meeting.UNREACHABLE
    cluster.play(70)
    newest = max(at for at, each in cluster.seen if isinstance(each, Heartbeat | SnapshotBegin))
    assert newest < 2 * 9 + 5


def test_two_brokers_that_left_between_two_answers_for_different_reasons_are_two_steps() -> None:
    cluster = SmallCluster({0: part((1, 2, 3), (1, 2, 3), 1)})
    cluster.meets(12.3, 3, Meeting.REFUSED)
    cluster.becomes(21.2, 0, without(cluster.partitions[0], 2, 3))
    cluster.unlisted(21.2, 3)
    cluster.play(30)
    assert [(each.cause, each.isr) for each in cluster.steps()] == [(Cause.LAG, (1, 3)), (Cause.FENCED, (1,))]


def test_the_window_of_a_change_begins_before_the_poller_was_suspended() -> None:
    cluster = of_three()
    cluster.paused, cluster.is_suspended = (22.3, 40), True
    cluster.becomes(30, 0, without(cluster.partitions[0], 3))
    cluster.play(60)
    (step,) = cluster.steps()
    assert step.occurred_not_before <= (100 + 22.3) * SECOND <= (100 + 40) * SECOND <= step.occurred_not_after


def test_the_time_in_which_no_broker_answered_is_unknown_also_where_much_is_met_before_the_metadata() -> None:
    """Who lists whom, and which controller leads, is known before the metadata are read; partitions are not."""
    cluster = of_three()
    for broker in (1, 2, 3):
        cluster.meets(12.3, broker, Meeting.REFUSED)
        cluster.meets(76, broker, Meeting.ANSWERED)
    lose(cluster, 70, 3, successor=1)
    cluster.at(70, lambda: setattr(cluster, "quorum", QuorumLeader(101, 2)))
    cluster.play(100)
    state = ReplicationState()
    state.apply(fold(state, [each for _, each in cluster.seen]).touched)
    (of_cluster,) = state.clusters.values()
    assert of_cluster.unobserved_micros > 60 * SECOND
    assert of_cluster.controller == 101


# What a proxy in front hides.


@pytest.mark.parametrize("how", [Meeting.SILENT, Meeting.CLOSED, Meeting.WRONG_NODE])
def test_a_dead_broker_whose_proxy_accepts_connections_is_lost_all_the_same(how: Meeting) -> None:
    cluster = of_three()
    cluster.addresses = dict.fromkeys((1, 2, 3), ("gateway", 9092))
    cluster.meets(12.3, 3, how)
    lose(cluster, 21.2, 3, successor=1)
    cluster.play(40)
    assert causes(cluster) == [Cause.FENCED]


def test_connections_that_a_shared_address_refuses_do_not_end_a_broker_that_is_listed() -> None:
    """A gateway that is restarted refuses for all of them, while a leader removes one follower for lag."""
    cluster = of_three()
    cluster.addresses = dict.fromkeys((1, 2, 3), ("gateway", 9092))
    cluster.meets(12, 3, Meeting.CLOSED)
    cluster.becomes(16, 0, without(cluster.partitions[0], 3))
    cluster.play(30)
    assert causes(cluster) == [Cause.LAG]
    assert "proxy" in (cluster.steps()[0].because or "")


# What cannot be known.


def test_a_clean_stop_and_a_crash_look_alike_of_a_broker_that_was_never_asked() -> None:
    cluster = of_three()
    cluster.how[3] = Meeting.WRONG_NODE
    lose(cluster, 12, 3, successor=1)
    cluster.play(20)
    (step,) = cluster.steps()
    assert (step.evidence, step.candidates) == (Evidence.AMBIGUOUS, (Cause.FENCED, Cause.CONTROLLED_SHUTDOWN))
    assert "look alike here" in (step.because or "")


def test_a_broker_without_a_listener_of_the_name_that_is_asked_is_not_taken_for_fenced() -> None:
    """Its name stands in ISRs, and no broker lists it."""
    cluster = SmallCluster({0: part((1, 2, 4), (1, 2, 4), 1)})
    cluster.unseen = {4}
    cluster.play(20)
    assert not cluster.of_broker(4)
    assert cluster.steps() == []


def test_a_stop_is_taken_for_the_last_of_what_happened_between_two_answers() -> None:
    """Harm then is that of the stop, which is never called planned where it refused writes."""
    cluster = of_three()
    cluster.intervals = Intervals(cheap=0)
    cluster.becomes(11, 0, without(cluster.partitions[0], 2))
    lose(cluster, 12.3, 3, successor=1, is_fenced=False)
    cluster.unlisted(13.4, 3)
    cluster.meets(13.5, 3, Meeting.REFUSED)
    cluster.play(30)
    assert causes(cluster) == [Cause.LAG, Cause.CONTROLLED_SHUTDOWN]
