"""Incidents of polled clusters: the same fold and rules as with the log, and the same classes."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import ControllerObserved
from streaming.sources.polling.inference.inquiry import Meeting, QuorumLeader
from streaming.sources.polling.inference.schedule import Intervals
from tests.judge.play import JobOfPlay
from tests.sources.polling.small_cluster import SECOND, SmallCluster, lose, of_three, part, rejoin


def stop(cluster: SmallCluster, second: float, broker: int, successor: int) -> None:
    """Plan that a broker is stopped cleanly, and started again 12 seconds later."""
    lose(cluster, second, broker, successor, is_fenced=False)
    cluster.unlisted(second + 0.9, broker)
    cluster.meets(second + 1.0, broker, Meeting.REFUSED)
    cluster.meets(second + 12, broker, Meeting.ANSWERED)
    rejoin(cluster, second + 12, broker)


def incidents(cluster: SmallCluster, seconds: float) -> list[dict[str, Any]]:
    cluster.play(seconds)
    job = JobOfPlay()
    for second in range(0, round(seconds) + 5, 5):
        seen = [each for at, each in cluster.seen if second - 5 <= at < second]
        job.batch(Micros((100 + second) * SECOND), seen)
    return job.incidents_of_their_own()


def suspects(incident: dict[str, Any]) -> list[int]:
    return [each["broker"] for each in incident["suspects"]]


def test_a_killed_broker_is_a_broker_loss_and_the_incident_says_from_what_that_is_inferred() -> None:
    cluster = of_three()
    cluster.meets(12.3, 3, Meeting.REFUSED)
    lose(cluster, 21.2, 3, successor=1)
    (incident,) = incidents(cluster, 40)
    assert (incident["incident_class"], suspects(incident)) == ("broker_loss", [3])
    assert "(inferred from polls: broker 3 had refused connections for at least" in incident["summary"]


def test_a_clean_stop_is_planned_and_two_in_turn_are_a_rolling_restart() -> None:
    cluster = of_three()
    stop(cluster, 12.3, 3, successor=1)
    stop(cluster, 42.3, 2, successor=1)
    (incident,) = incidents(cluster, 80)
    assert incident["incident_class"] == "rolling_restart"
    assert incident["severity"] == "info"


def test_one_clean_stop_is_a_controlled_shutdown() -> None:
    cluster = of_three()
    stop(cluster, 12.3, 3, successor=1)
    (incident,) = incidents(cluster, 50)
    assert (incident["incident_class"], suspects(incident)) == ("controlled_shutdown", [3])


def test_a_clean_stop_that_leaves_no_leader_is_never_planned() -> None:
    cluster = SmallCluster({0: part((3,), (3,), 3), 1: part((1, 2, 3), (1, 2, 3), 1)})
    lose(cluster, 12.3, 3, successor=-1, is_fenced=False)
    cluster.at(12.35, lambda: cluster.partitions.update({0: part((3,), (3,), -1, 1)}))
    cluster.unlisted(13.2, 3)
    cluster.meets(13.3, 3, Meeting.REFUSED)
    (incident,) = incidents(cluster, 50)
    assert incident["incident_class"] == "unsafe_shutdown"


def test_a_broker_that_is_killed_and_back_before_it_was_fenced_recovers() -> None:
    cluster = of_three()
    cluster.meets(12.3, 3, Meeting.REFUSED)
    lose(cluster, 21.2, 3, successor=1, is_fenced=False)
    cluster.meets(21.6, 3, Meeting.ANSWERED)
    rejoin(cluster, 23, 3)
    (incident,) = incidents(cluster, 60)
    assert incident["incident_class"] == "broker_loss"
    assert incident["recovered_at"] is not None


def test_where_a_stop_and_a_crash_look_alike_the_incident_says_so_and_is_harmful() -> None:
    cluster = of_three()
    cluster.how[3] = Meeting.WRONG_NODE
    lose(cluster, 12, 3, successor=1)
    (incident,) = incidents(cluster, 40)
    assert incident["incident_class"] == "broker_loss"
    assert "broker 3 was lost, or stopped cleanly: a clean stop and a crash look alike here" in incident["summary"]


def test_a_leader_that_stood_still_is_to_blame_for_the_followers_it_removed() -> None:
    cluster = of_three()
    cluster.intervals = Intervals(lag=10 * SECOND, session=30 * SECOND)
    cluster.meets(12, 2, Meeting.SILENT)
    cluster.meets(22.5, 2, Meeting.ANSWERED)
    cluster.becomes(22.6, 1, part((1, 2, 3), (2,), 2))
    cluster.becomes(22.9, 1, part((1, 2, 3), (1, 2, 3), 2))
    (incident,) = incidents(cluster, 60)
    assert (incident["incident_class"], suspects(incident)) == ("leader_stall", [2])


@pytest.mark.parametrize("full_report", [300, 5], ids=["between full reports", "in a full report"])
def test_brokers_that_a_stalled_controller_fenced_for_a_moment_are_innocent(full_report: int) -> None:
    """A full report holds the steps and the return, too: the return is last, as it was."""
    cluster = of_three()
    cluster.intervals = Intervals(full_report=Micros(full_report * SECOND))
    cluster.at(10.5, lambda: setattr(cluster, "quorum", None))
    cluster.at(24.9, lambda: setattr(cluster, "quorum", QuorumLeader(100, 1)))
    lose(cluster, 24.9, 3, successor=1, is_fenced=False)
    rejoin(cluster, 25.3, 3)
    (incident,) = incidents(cluster, 60)
    assert (incident["incident_class"], suspects(incident)) == ("controller_stall", [100])


@pytest.mark.parametrize("rejoined", [40.6, 42, 48])
def test_a_poller_that_is_cut_off_with_one_broker_blames_no_controller(rejoined: float) -> None:
    """The broker answers, and waits for a controller as if that stood still; all the others are silent, too."""
    cluster = of_three()
    cluster.sees[3], cluster.lists[3] = dict(cluster.partitions), {1, 2, 3}
    cluster.at(10.5, lambda: setattr(cluster, "quorum", None))
    cluster.at(40.5, lambda: setattr(cluster, "quorum", QuorumLeader(100, 1)))
    for silent in (1, 2):
        cluster.meets(10.5, silent, Meeting.SILENT)
        cluster.meets(40.5, silent, Meeting.ANSWERED)
    lose(cluster, 20, 3, successor=1)
    cluster.at(40.5, lambda: (cluster.sees.clear(), cluster.lists.clear()))
    cluster.relisted(40.6, 3)
    rejoin(cluster, rejoined, 3)
    (incident,) = incidents(cluster, 80)
    assert (incident["incident_class"], suspects(incident)) == ("broker_loss", [3])
    assert not [each for _, each in cluster.seen if isinstance(each, ControllerObserved) and each.silent_since]


def test_a_leader_that_stood_still_is_to_blame_also_where_it_removed_one_follower_that_others_keep() -> None:
    """Its reports alone look like a failed link to that follower; that it did not answer just before tells more."""
    cluster = SmallCluster({0: part((1, 2), (1, 2), 1), 1: part((3, 2), (3, 2), 3)})
    cluster.intervals = Intervals(lag=Micros(10 * SECOND), session=Micros(30 * SECOND))
    cluster.meets(12, 1, Meeting.SILENT)
    cluster.meets(34.5, 1, Meeting.ANSWERED)
    cluster.becomes(34.6, 0, part((1, 2), (1,), 1))
    cluster.becomes(35.6, 0, part((1, 2), (1, 2), 1))
    (incident,) = incidents(cluster, 60)
    assert (incident["incident_class"], suspects(incident)) == ("leader_stall", [1])


def test_another_controller_may_lead_since_the_last_answer_of_the_one_before() -> None:
    """A broker that waits for the old one asks the new one only then: the election may be long over."""
    cluster = of_three()
    cluster.at(12, lambda: setattr(cluster, "quorum", None))
    cluster.at(35, lambda: setattr(cluster, "quorum", QuorumLeader(101, 2)))
    cluster.play(40)
    *_, elected = (each for _, each in cluster.seen if isinstance(each, ControllerObserved) and each.controller == 101)
    assert elected.occurred_not_before <= (100 + 12) * SECOND


def test_moves_are_reported_also_where_the_broker_that_they_free_stops_before_the_next_answer() -> None:
    cluster = SmallCluster({0: part((1, 2, 3), (1, 2, 3), 1), 1: part((2, 1, 3), (2, 1, 3), 2)}, brokers=(1, 2, 3, 4))
    for number, leader in ((0, 1), (1, 2)):
        cluster.becomes(12.3, number, part((leader, 3 - leader, 4), (1, 2, 4), leader))
    cluster.unlisted(12.6, 3)
    cluster.meets(12.7, 3, Meeting.REFUSED)
    assert {each["incident_class"] for each in incidents(cluster, 40)} == {"reassignment"}


@pytest.mark.parametrize("led", [QuorumLeader(100, 1), QuorumLeader(101, 2)], ids=["same controller", "another one"])
def test_all_brokers_that_are_cut_off_with_the_poller_are_lost_and_none_was_stopped_cleanly(led: QuorumLeader) -> None:
    """Those that were not asked for a controller are cut off from it as much as the one that was."""
    cluster = SmallCluster(
        {0: part((4, 1, 2), (4, 1, 2), 4), 1: part((5, 2, 3), (5, 2, 3), 5)}, brokers=(1, 2, 3, 4, 5)
    )
    for here in (4, 5):
        cluster.sees[here], cluster.lists[here] = dict(cluster.partitions), {1, 2, 3, 4, 5}
        cluster.at(40.5, lambda here=here: (cluster.sees.pop(here), cluster.lists.pop(here)))
        lose(cluster, 20, here, successor=2)
        cluster.relisted(40.6, here)
    cluster.at(10.5, lambda: setattr(cluster, "quorum", None))
    cluster.at(40.5, lambda: setattr(cluster, "quorum", led))
    for silent in (1, 2, 3):
        cluster.meets(10.5, silent, Meeting.SILENT)
        cluster.meets(40.5, silent, Meeting.ANSWERED)
    for here in (4, 5):
        rejoin(cluster, 44, here)
    found = {each["incident_class"]: suspects(each) for each in incidents(cluster, 80)}
    assert found.pop("controller_failover", []) == []
    assert found == {"broker_loss": [4, 5]}


@pytest.mark.parametrize("led", [QuorumLeader(100, 1), QuorumLeader(101, 2)], ids=["same controller", "another one"])
def test_where_most_brokers_are_cut_off_with_the_poller_two_that_are_not_show_it(led: QuorumLeader) -> None:
    cluster = SmallCluster(
        {0: part((1, 4, 5), (1, 4, 5), 1), 1: part((2, 5, 1), (2, 5, 1), 2)}, brokers=(1, 2, 3, 4, 5), viewed_at=1
    )
    for here in (1, 2, 3):
        cluster.sees[here], cluster.lists[here] = dict(cluster.partitions), {1, 2, 3, 4, 5}
        cluster.at(22.5, lambda here=here: (cluster.sees.pop(here), cluster.lists.pop(here)))
        lose(cluster, 20, here, successor=5)
        cluster.relisted(22.6, here)
        rejoin(cluster, 26, here)
    cluster.at(10.5, lambda: setattr(cluster, "quorum", None))
    cluster.at(22.5, lambda: setattr(cluster, "quorum", led))
    for silent in (4, 5):
        cluster.meets(10.5, silent, Meeting.SILENT)
        cluster.meets(22.5, silent, Meeting.ANSWERED)
    found = {each["incident_class"]: suspects(each) for each in incidents(cluster, 50)}
    assert found.pop("controller_failover", []) == []
    assert found == {"broker_loss": [1, 2]}
    left, joined = cluster.steps()
    assert left.occurred_not_before <= (100 + 20) * SECOND <= (100 + 22.5) * SECOND <= left.occurred_not_after
    assert joined.occurred_not_before > (100 + 22.5) * SECOND


@pytest.mark.parametrize("is_suspended", [True, False], ids=["suspended", "paused"])
@pytest.mark.parametrize("end", [40, 83.1])
def test_who_left_while_the_poller_stood_still_crashed_or_was_stopped(*, is_suspended: bool, end: float) -> None:
    """A broker crashes 12 seconds before the poller goes on, and loses its session; none saw how it behaved."""
    cluster = of_three()
    cluster.paused, cluster.is_suspended = (22.3, end), is_suspended
    cluster.meets(end - 12, 3, Meeting.REFUSED)
    lose(cluster, end - 3, 3, successor=1)
    (incident,) = incidents(cluster, end + 40)
    assert (incident["incident_class"], suspects(incident)) == ("broker_loss", [3])
    assert "a clean stop and a crash look alike here" in incident["summary"]


@pytest.mark.parametrize("is_cut_off", [True, False], ids=["cut off", "paused"])
def test_who_is_back_when_the_poller_sees_again_crashed_or_was_stopped(*, is_cut_off: bool) -> None:
    """It has lost its leaders, is listed, and answers again: it had either fate in between."""
    cluster = of_three()
    cluster.paused = (0, 0) if is_cut_off else (22.3, 48)
    for broker in (1, 2, 3) if is_cut_off else ():
        cluster.meets(22.3, broker, Meeting.SILENT)
        cluster.meets(48, broker, Meeting.ANSWERED)
    lose(cluster, 32, 3, successor=1)
    cluster.relisted(40, 3)
    rejoin(cluster, 60, 3)
    (incident,) = incidents(cluster, 130)
    assert (incident["incident_class"], suspects(incident)) == ("broker_loss", [3])
    assert "a clean stop and a crash look alike here" in incident["summary"]
    assert incident["closed_at"] is not None, "it is back"


def test_a_broker_whose_restart_was_not_seen_in_any_list_is_lost_when_it_crashes_later() -> None:
    cluster = of_three()
    lose(cluster, 12.3, 3, successor=1, is_fenced=False)
    cluster.meets(12.9, 3, Meeting.REFUSED)
    cluster.meets(16, 3, Meeting.ANSWERED)
    rejoin(cluster, 18, 3)
    cluster.meets(100, 3, Meeting.REFUSED)
    lose(cluster, 109, 3, successor=1)
    stopped, lost = incidents(cluster, 140)
    assert (stopped["incident_class"], lost["incident_class"]) == ("controlled_shutdown", "broker_loss")
    assert "answered until it led nothing any more" in stopped["summary"]


def without_power(cluster: SmallCluster, begin: float, booted: float, end: float) -> None:
    """Plan that all machines lose power, start again, and serve, with the next controller."""
    cluster.at(begin, lambda: setattr(cluster, "quorum", None))
    cluster.at(end, lambda: setattr(cluster, "quorum", QuorumLeader(100, 2)))
    for broker in cluster.brokers:
        cluster.meets(begin, broker, Meeting.SILENT)
        cluster.meets(booted, broker, Meeting.REFUSED)
        cluster.meets(end, broker, Meeting.ANSWERED)


@pytest.mark.parametrize("leaders", [(1, 2, 3), (2, 3, 1)], ids=["same leaders", "others"])
def test_a_power_cut_of_all_brokers_is_the_loss_of_all(leaders: tuple[int, ...]) -> None:
    """How they came back was not seen: every ISR is full again with the first answer, and all epochs have grown."""
    cluster = of_three()
    without_power(cluster, 12.3, 60, 76)
    for number, leader in enumerate(leaders):
        cluster.becomes(75, number, part((1, 2, 3), (1, 2, 3), leader, epoch=2))
    found = {each["incident_class"]: each for each in incidents(cluster, 95)}
    assert found.pop("controller_failover")
    (incident,) = found.values()
    assert (incident["incident_class"], suspects(incident)) == ("broker_loss", [1, 2, 3])
    assert (incident["severity"], incident["offline_peak"]) == ("critical", 3)
    assert "no broker of the ISR answered for 6" in incident["summary"]
    assert incident["recovered_at"] is not None


def test_brokers_that_come_back_one_by_one_from_a_power_cut_were_all_lost() -> None:
    cluster = of_three()
    without_power(cluster, 12.3, 60, 76)
    cluster.meets(77, 2, Meeting.ANSWERED)
    cluster.meets(78, 3, Meeting.ANSWERED)
    for number in range(3):
        cluster.becomes(75, number, part((1, 2, 3), (3,), -1, epoch=1))
        cluster.becomes(78, number, part((1, 2, 3), (3,), 3, epoch=2))
        cluster.becomes(80, number, part((1, 2, 3), (1, 2, 3), 3, epoch=2))
    cluster.at(75, lambda: cluster.listed.difference_update({2, 3}))
    cluster.relisted(77, 2)
    cluster.relisted(78, 3)
    found = {each["incident_class"]: each for each in incidents(cluster, 95)}
    assert found.pop("controller_failover")
    (incident,) = found.values()
    assert (incident["incident_class"], suspects(incident)) == ("broker_loss", [1, 2, 3])
    assert incident["recovered_at"] is not None


def test_two_disks_that_fail_between_two_answers_are_two_failures() -> None:
    cluster = of_three()
    cluster.becomes(12, 0, part((1, 2, 3), (1,), 1)._replace(offline=(2, 3)))
    found = [(each["incident_class"], suspects(each)) for each in incidents(cluster, 20)]
    assert sorted(found) == [("disk_failure", [2]), ("disk_failure", [3])]


def test_a_follower_that_no_leader_can_have_removed_was_lost_as_its_leader_was() -> None:
    """Both lose power, and are back as their sessions end, so that the brokers list them all the time."""
    cluster = SmallCluster({0: part((1, 2, 4), (1, 2, 4), 1), 1: part((3, 2, 4), (3, 2, 4), 3)}, brokers=(1, 2, 3, 4))
    cluster.intervals = Intervals(session=Micros(30 * SECOND))
    for broker in (3, 4):
        cluster.meets(12, broker, Meeting.SILENT)
        cluster.meets(50, broker, Meeting.ANSWERED)
    cluster.becomes(43, 1, part((3, 2, 4), (3, 2), 3))
    cluster.becomes(44.5, 1, part((3, 2, 4), (3, 2, 4), 2, epoch=1))
    (incident,) = incidents(cluster, 60)
    assert (incident["incident_class"], suspects(incident)) == ("broker_loss", [3, 4])


def test_a_broker_that_only_the_poller_does_not_reach_was_lost_or_stopped_when_it_leaves() -> None:
    """It was listed for longer than any session: so it ran, and the poller did not see how it ended."""
    cluster = of_three()
    cluster.meets(12, 3, Meeting.SILENT)
    lose(cluster, 40, 3, successor=1)
    (incident,) = incidents(cluster, 50)
    assert (incident["incident_class"], suspects(incident)) == ("broker_loss", [3])
    assert "broker 3 was lost, or stopped cleanly: a clean stop and a crash look alike here" in incident["summary"]


def test_followers_that_a_leader_removes_while_no_controller_fences_them_were_lost() -> None:
    """They lose power with the controller, which is back before them: until then, all brokers are listed."""
    cluster = of_three()
    cluster.at(12, lambda: setattr(cluster, "quorum", None))
    cluster.at(50, lambda: setattr(cluster, "quorum", QuorumLeader(100, 2)))
    for broker in (2, 3):
        cluster.meets(12, broker, Meeting.UNREACHABLE)
    cluster.becomes(50, 0, part((1, 2, 3), (1,), 1))
    found = {each["incident_class"]: suspects(each) for each in incidents(cluster, 57)}
    assert found == {"broker_loss": [2, 3], "controller_failover": []}
