"""What an incident is called, and whom it blames: real sequences of faults, most with Kafka's own timeouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from streaming.changes.incidents.context import ChangeRow, Family
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.changes.incidents.incident import Incident
from streaming.changes.incidents.rules import incident_blaming
from streaming.changes.state import ConfiguredTimes
from tests.changes.faults import SIX, THREE, Fault, of, played
from tests.changes.test_incidents import SECOND, START, named, standing, table_of

KAFKAS = 30_000
IN_PAIRS = {"racks": {"1": "a", "2": "a", "3": "b", "4": "b", "5": "c", "6": "c"}}


RING = [[one, one % 6 + 1, (one + 1) % 6 + 1] for one in (*SIX, *SIX)]
"""Partitions of which each follower of a leader is its neighbour, or the one after."""


def links(action: str, ones: Iterable[int], others: Iterable[int], at: float) -> list[Fault]:
    pairs = [(one, other) for one in ones for other in others]
    return [(at, action, {"link": list(way)}) for one, other in pairs for way in ((one, other), (other, one))]


def cut(ones: Iterable[int], others: Iterable[int], begin: float, end: float) -> list[Fault]:
    return [*links("cut", ones, list(others), begin), *links("mend", ones, list(others), end)]


def restart(action: str, broker: int, at: float, seconds: float) -> list[Fault]:
    return [*of(action, broker, at=at), *of("start", broker, at=at + seconds)]


HALVES = ([1, 2, 3], [4, 5, 6])
EMPTIED: Fault = (10, "reassign", {"topic": "orders", "partition": 0, "replicas": [1, 2, 3]})
UNREPORTED = [[5, 2, 1], [2, 5, 4], [3, 5, 6], [4, 6, 3]]
PLAYS: dict[str, tuple[list[Fault], int, dict[str, Any], list[tuple[str, list[int]]]]] = {
    "crashes one after the other are no rolling restart": (
        [*restart("kill", 2, 10, 20), *restart("kill", 4, 110, 20), *restart("kill", 5, 210, 5)], 300, {},
        [("broker_loss", [2]), ("broker_loss", [4]), ("broker_loss", [5])],
    ),
    "a crash between the turns stays a loss": (
        [*restart("stop", 1, 10, 15), *restart("kill", 5, 60, 20), *restart("stop", 2, 130, 15)], 200, {},
        [("rolling_restart", [1, 2]), ("broker_loss", [5])],
    ),
    "a clean stop that takes a partition offline is not planned": (
        restart("stop", 2, 10, 15), 60, {"replication_factor": 1, "min_insync_replicas": 1},
        [("unsafe_shutdown", [2])],
    ),
    "a clean stop after which writes are refused is not planned": (
        restart("stop", 2, 10, 15), 60, {"replication_factor": 2, "min_insync_replicas": 2},
        [("unsafe_shutdown", [2])],
    ),
    "a broker that was emptied before it is stopped and unregistered is no loss": (
        [EMPTIED, *of("stop", 6, at=60), *of("unregister", 6, at=90)], 120,
        {"partitions": 2, "assignments": [[6, 2, 3], [1, 2, 3]]}, [("reassignment", [])],
    ),
    "all brokers of a rack lost together are the loss of that rack": (
        of("kill", 3, 4, at=10), 40, IN_PAIRS, [("rack_loss", [3, 4])],
    ),
    "brokers of two racks lost together are no loss of a rack": (
        of("kill", 3, 5, at=10), 40, IN_PAIRS, [("broker_loss", [3, 5])],
    ),
    "a rack that the other brokers do not reach is one split": (
        cut([3, 4], [1, 2, 5, 6], 10, 60), 120, {}, [("network_split", [3, 4])],
    ),
    "a cut is one where its reports show no sides": (
        cut(*HALVES, 13, 43), 90, {"partitions": 12, "replication_factor": 2, "min_insync_replicas": 1},
        [("network_split", [*SIX])],
    ),
    "a cut is one where its many reports show no sides": (
        cut(*HALVES, 13, 43), 90, {"partitions": 24, "replication_factor": 2, "min_insync_replicas": 1},
        [("network_split", [*SIX])],
    ),
    "links that are lost one after the other are two": (
        [*cut([1], [2], 13, 60), *cut([4], [5], 40, 90)], 130, {"partitions": 12, "assignments": RING},
        [("link_failure", [1, 2]), ("link_failure", [4, 5])],
    ),
    "a link that stays lost after a cut was mended does not make the cut a link": (
        [*cut([1, 3, 5], [2, 4, 6], 10, 26), *cut([2], [4], 40, 150)], 200, {"partitions": 12, "assignments": RING},
        [("network_split", [*SIX])],
    ),
    "a broker that dies when a cut was mended is an incident of its own": (
        [*cut(*HALVES, 13, 43), *restart("kill", 1, 60, 20)], 120, {"partitions": 12},
        [("network_split", [*SIX]), ("broker_loss", [1])],
    ),
    "a broker that dies long after a cut began is an incident of its own": (
        [*cut(*HALVES, 13, 90), *restart("kill", 4, 60, 50)], 140, {"partitions": 12},
        [("network_split", [*SIX]), ("broker_loss", [4])],
    ),
    "a broker that dies on one side of a cut which nobody reported is an incident of its own": (
        [*cut([1, 5], [2, 3, 4, 6], 13, 90), *restart("kill", 1, 60, 40)], 140,
        {"partitions": 4, "assignments": UNREPORTED}, [("network_split", [1, 5]), ("broker_loss", [1])],
    ),
    "a slow broker that somebody stops was stopped all the same": (  # it had removed its followers: nobody else leads
        [(10, "slow_disk", {"broker": 3, "records_per_second": 4}), (65, "mend_disk", {"broker": 3}),
         *restart("stop", 3, 60, 20)],
        120, {"brokers": (1, 2, 3, 4), "partitions": 12, "records_per_second": 10},
        [("slow_follower", [3]), ("unsafe_shutdown", [3])],
    ),
}  # fmt: skip


@pytest.mark.parametrize("play", PLAYS.values(), ids=PLAYS)
def test_incidents_have_the_class_and_the_suspects_of_what_happened(play: tuple[Any, ...]) -> None:
    faults, seconds, topic, expected = play
    assert named(played(faults, seconds, **topic)) == expected


def test_an_incident_counts_its_changes_by_their_causes() -> None:
    rows = played(restart("kill", 2, 10, 20), 60)
    (row,) = standing(rows)
    counted = {each["cause"]: each["changes"] for each in row["causes"]}
    assert counted == Counter(each.cause for each in rows if each.cause)
    assert counted.keys() == {"fenced", "expand", "preferred_election"}


def test_brokers_stopped_in_turn_are_a_rolling_restart_and_nobody_is_to_blame() -> None:
    rows = played([*restart("stop", 1, 10, 15), *restart("stop", 2, 60, 15)], 120)
    (row,) = standing(rows)
    assert (row["incident_class"], row["suspects"]) == (
        "rolling_restart", [{"broker": 1, "score": 0.0}, {"broker": 2, "score": 0.0}],
    )  # fmt: skip


def test_a_clean_stop_that_alone_keeps_a_partition_under_its_minimum_is_not_planned_whoever_brought_it_there() -> None:
    topic = {"partitions": 1, "replication_factor": 3, "min_insync_replicas": 3, "assignments": [[1, 2, 3]]}

    def incidents(return_of_the_lost: int) -> list[tuple[str, list[int]]]:
        crash = restart("kill", 2, 10, return_of_the_lost - 10)
        return named(played([*crash, *restart("stop", 1, 40, 60)], 140, **topic))

    assert incidents(60) == [("broker_loss", [2]), ("unsafe_shutdown", [1])]
    assert incidents(120) == [("broker_loss", [2]), ("controlled_shutdown", [1])]


def test_a_turn_that_does_not_come_back_is_a_loss_while_nothing_changes() -> None:
    faults = [*restart("stop", 1, 10, 15), *of("stop", 3, at=60)]

    def after(seconds: int) -> list[tuple[str, list[int]]]:
        rows = played(faults, 90, records_per_second=1)
        heartbeat = rows[-1]._replace(subject="source", time=START + seconds * SECOND, events=(), event_ids=())
        return named([*rows, heartbeat])

    assert after(600) == [("rolling_restart", [1, 3])]
    assert after(700) == [("broker_loss", [3])]


@pytest.mark.parametrize("seed", [1, *(pytest.param(it, marks=pytest.mark.long) for it in (2, 3))])
def test_a_slow_disk_is_no_split_with_kafkas_timeouts(seed: int) -> None:
    begin = 10 + 1.7 * seed
    slow: list[Fault] = [
        (begin, "slow_disk", {"broker": 3, "records_per_second": 4}), (begin + 90, "mend_disk", {"broker": 3}),
    ]  # fmt: skip
    rows = played(slow, 150, brokers=(1, 2, 3, 4), lag_millis=KAFKAS, partitions=12, records_per_second=5)
    assert named(rows) == [("slow_follower", [3])]


@pytest.mark.parametrize("brokers", [THREE, SIX])
def test_a_broker_that_its_peers_do_not_reach_is_split_off_with_kafkas_timeouts(brokers: tuple[int, ...]) -> None:
    others = [broker for broker in brokers if broker != 3]
    rows = played(cut([3], others, 13, 73), 120, brokers=brokers, lag_millis=KAFKAS, partitions=12)
    assert named(rows) == [("network_split", [3])]


def test_links_between_different_brokers_that_are_lost_at_once_are_one_cut() -> None:
    faults = [*cut([1], [2], 13, 60), *cut([4], [5], 13.4, 60)]
    rows = played(faults, 100, partitions=12, assignments=RING)
    (row,) = standing(rows)
    assert named(rows) == [("network_split", [1, 2, 4, 5])]
    assert row["summary"].startswith("the network between brokers 1, 2, 4 and 5 was cut: ")


def test_two_slow_brokers_are_no_cut() -> None:
    faults = [
        *((10.0 + broker, "slow_disk", {"broker": broker, "records_per_second": 4}) for broker in (2, 5)),
        *((70.0, "mend_disk", {"broker": broker}) for broker in (2, 5)),
    ]
    kinds = [kind for kind, _ in named(played(faults, 120, partitions=12, records_per_second=5))]
    assert "network_split" not in kinds


@pytest.mark.parametrize(
    ("begin", "death"),
    [(5.515, 31.5), *(pytest.param(*it, marks=pytest.mark.long) for it in ((5.6, 32.6), (5.8, 30.8)))],
)
def test_a_broker_that_dies_while_others_are_cut_off_is_an_incident_of_its_own(begin: float, death: float) -> None:
    """Its session ends within seconds of the first reports, which do not show yet who is on which side of the cut."""
    faults = [*cut([3, 5], [1, 2, 4, 6], begin, 90), *of("pause", 1, at=death), *of("resume", 1, at=88)]
    rows = played(faults, 140, lag_millis=KAFKAS, partitions=100, records_per_second=0.1)
    assert sorted(named(rows)) == [("broker_loss", [1]), ("network_split", [3, 5])]


def test_a_loss_that_may_be_a_part_of_a_cut_names_who_else_was_on_its_sides() -> None:
    """Either half may have lost the controllers, so the loss of one of them takes the cut over."""
    faults = [*cut([2, 4, 5], [1, 3, 6], 5.4, 90), *of("pause", 5, at=31.4), *of("resume", 5, at=88)]
    (row,) = standing(played(faults, 140, lag_millis=KAFKAS, partitions=100, records_per_second=0.1))
    assert row["summary"].startswith("broker 5 was lost (replication between brokers 1, 2, 3, 4 and 6 lagged, too): ")


def test_a_leader_that_is_lost_later_does_not_hide_that_its_follower_lagged_before() -> None:
    faults = [*cut([2], [1], 10, 60), *restart("kill", 2, 21, 30)]
    rows = standing(played(faults, 110, partitions=2, assignments=[[2, 1, 3], [3, 2, 1]]))
    assert [row["summary"].partition(":")[0] for row in rows] == [
        "broker 2 was lost (replication between brokers 1 and 2 lagged, too)"
    ]


def test_a_loss_that_nothing_lagged_beside_says_nothing_of_lag() -> None:
    (row,) = standing(played(restart("kill", 2, 10, 20), 60))
    assert row["summary"].startswith("broker 2 was lost: ")


@pytest.mark.parametrize("seconds", [4.2, 5.0, pytest.param(4.6, marks=pytest.mark.long)])
@pytest.mark.parametrize("phase", [0.74, *(pytest.param(it, marks=pytest.mark.long) for it in (3.33, 1.11, 1.85))])
def test_a_pause_hardly_longer_than_the_lag_time_is_a_stall_and_no_split(seconds: float, phase: float) -> None:
    faults = [*of("pause", 2, at=10 + phase), *of("resume", 2, at=10 + phase + seconds)]
    rows = played(faults, 60, brokers=THREE, lag_millis=3_000, partitions=6, records_per_second=50)
    assert named(rows) in ([("leader_stall", [2])], [("broker_loss", [2])]), "a session may have ended, too"


@pytest.mark.parametrize("seconds", [5.5, pytest.param(7.0, marks=pytest.mark.long)])
def test_a_cut_of_the_same_length_is_a_split(seconds: float) -> None:
    rows = played(cut([2], [1, 3], 10.74, 10.74 + seconds), 60, brokers=THREE, lag_millis=3_000, partitions=6)
    assert named(rows) == [("network_split", [2])]


def test_the_return_of_a_broker_is_part_of_the_incident_that_waits_for_it() -> None:
    rows = played(restart("kill", 3, 10, 30), 120, brokers=THREE, partitions=2, assignments=[[1, 2, 3], [2, 3, 1]])
    back = next(row for row in rows if row.broker == 3 and row.time > START + 40 * SECOND)
    (lost,) = standing(rows)
    assert set(back.event_ids) <= set(lost["event_ids"])
    assert lost["suspects"] == [{"broker": 3, "score": 1.0}], "it explains every removal"


def test_two_brokers_that_do_not_reach_each_other_have_lost_their_link() -> None:
    (row,) = standing(played(cut([3], [1], 10, 60), 120))
    assert (row["incident_class"], row["suspects"]) == (
        "link_failure", [{"broker": 1, "score": 0.5}, {"broker": 3, "score": 0.5}],
    )  # fmt: skip


def test_where_one_leader_alone_removed_a_follower_that_follows_nobody_else_either_may_be_at_fault() -> None:
    (row,) = standing(played(cut([3], [1], 10, 60), 120, partitions=1, assignments=[[1, 2, 3]]))
    assert (row["incident_class"], row["suspects"]) == (
        "slow_follower", [{"broker": 1, "score": 0.5}, {"broker": 3, "score": 0.5}],
    )  # fmt: skip
    assert row["summary"].startswith("broker 3 could not keep up with broker 1, and one of the two may be at fault")


def test_an_unclean_election_blames_who_led_last_and_not_another_broker_that_was_lost_with_it() -> None:
    faults = [*of("kill", 2, at=10), *of("kill", 1, 5, at=30), *of("start", 2, at=60), *of("start", 1, 5, at=90)]
    rows = played(
        faults, 140, partitions=2, assignments=[[1, 2], [5, 6]], replication_factor=2, min_insync_replicas=1,
        unclean_leader_election=True, records_per_second=10,
    )  # fmt: skip
    assert ("unclean_election", [1]) in named(rows)
    (summary,) = [row["summary"] for row in standing(rows) if row["incident_class"] == "unclean_election"]
    assert summary.startswith("broker 1 was lost and leaders were elected uncleanly (broker 5 was lost, too): ")


def test_a_partition_that_elects_uncleanly_again_is_one_partition() -> None:
    first = [*of("kill", 2, at=10), *of("kill", 1, at=30), *of("start", 2, at=50)]
    again = [*of("start", 1, at=70), *of("kill", 1, at=90), *of("kill", 2, at=110), *of("start", 1, at=130)]
    rows = played(
        [*first, *again, *of("start", 2, at=150)], 200, partitions=1, assignments=[[1, 2]], replication_factor=2,
        min_insync_replicas=1, unclean_leader_election=True, records_per_second=10,
    )  # fmt: skip
    (row,) = [row for row in standing(rows) if row["incident_class"] == "unclean_election"]
    assert row["unclean_elections"] == 2
    assert "1 led by a replica that may lack acknowledged records" in row["summary"]


def test_clean_stops_in_turn_that_the_log_proves_late_are_one_rolling_restart() -> None:
    leads_nothing = [[1, 2, 3], [1, 3, 2], [2, 1, 4], [2, 4, 1]] * 3
    faults = [*restart("stop", 3, 10, 20), *restart("stop", 4, 60, 20)]
    rows = played(faults, 120, partitions=12, assignments=leads_nothing)
    assert named(rows) == [("broker_loss", [3]), ("broker_loss", [4])], "nothing is proven yet"
    assert named(proven_late(rows, 3, 4)) == [("rolling_restart", [3, 4])]


def test_the_death_of_a_node_that_is_broker_and_active_controller_is_one_incident() -> None:
    brokers = (98, 99, 100)
    active: Fault = (10, "kill", {"controller": "active"})  # whichever it is; the model calls that of node 100 -100
    found = {
        broker: named(played([active, *of("kill", broker, at=10)], 40, brokers=brokers, controllers=3))
        for broker in brokers
    }
    assert sorted(found.values()) == sorted(
        [[("broker_loss", [100])]] + [[("controller_failover", []), ("broker_loss", [each])] for each in (98, 99)]
    )


def test_severity_consequence_and_next_step_say_what_clients_notice() -> None:
    def reported(rows: Sequence[ChangeRow]) -> list[tuple[str, str, str]]:
        return [(row["severity"], row["consequence"], row["next_step"]) for row in standing(rows)]

    planned = played(of("stop", 1, at=10), 20)
    lost = played(of("kill", 2, at=10), 40)
    refused = played(of("kill", 2, at=10), 40, min_insync_replicas=3)
    leaderless = played(of("kill", 2, at=10), 40, replication_factor=1, min_insync_replicas=1)

    start = "start broker 2 again, and stop no other broker meanwhile"
    assert reported(planned) == [
        ("info", "clients notice nothing", "start broker 1 again before any other broker is stopped")
    ]
    assert reported(lost) == [("warning", "writes continue with fewer copies", start)]
    assert reported(refused) == [("critical", "acks=all writers of topic orders fail", start)]
    assert reported(leaderless)[0][:2] == ("critical", "partitions of topic orders cannot be written or read")


def test_the_times_of_incidents_are_those_that_the_cluster_reports() -> None:
    rows = played([], 20, lag_millis=2500)
    incidents = IncidentFold(IncidentGaps())
    incidents.fold(rows)
    times = incidents.times("c")
    assert (times.replica_lag_time, times.broker_session) == (2_500_000, 6_000_000)
    assert (times.fetch_backoff, times.registration) == (1_000_000, 60_000_000), "nobody has reported these"


FAMILIES = (Family.LOSS, Family.LAG)


def proven_late(rows: Sequence[ChangeRow], *brokers: int) -> tuple[ChangeRow, ...]:
    """The rows, and after six and a half seconds the proof that these brokers, when fenced, had stopped cleanly."""
    proofs = [
        row._replace(
            since=row.time + 6_500_000, time=row.time + 6_500_000, cause="controlled_shutdown", evidence="proven",
            left=(), isr_before=row.isr, leader_before=row.leader, events=("cause_revised",),
            event_ids=(f"{row.event_ids[0]}/proof",),
            proven=next(iter({*brokers} & {*row.left})),
        )
        for row in rows
        if row.cause == "fenced" and row.evidence == "ambiguous" and not set(brokers).isdisjoint(row.left)
    ]  # fmt: skip
    return tuple(sorted([*rows, *proofs], key=lambda row: row.time))


def peaks(rows: Sequence[ChangeRow]) -> list[int]:
    """How many partitions were under-replicated at once, by incident."""
    return [row["under_replicated_peak"] for row in standing(rows)]


def test_a_loss_beside_a_failed_disk_is_an_incident_of_its_own() -> None:
    disk: Fault = (5, "fail_log_dir", {"broker": 3, "directory": "dir-1"})
    for seconds_later in (1, 30):
        rows = played([disk, *of("kill", 3, at=100), *of("kill", 2, at=100 + seconds_later)], 160)
        assert named(rows) == [("disk_failure", [3]), ("broker_loss", [2])]


def test_lag_that_a_leader_left_alone_reports_is_the_beginning_of_the_loss_of_its_followers() -> None:
    dead = [*of("kill", 2, 3, at=5), *of("start", 2, 3, at=45)]
    rack = [*of("kill", 3, 4, at=5), *of("start", 3, 4, at=45)]
    led_by_two = [[1, 3, 4], [2, 3, 4]] * 6
    alone = played(dead, 120, brokers=THREE, lag_millis=2500)
    together = played(rack, 120, lag_millis=2500, partitions=12, assignments=led_by_two)
    assert (named(alone), peaks(alone)) == ([("broker_loss", [2, 3])], [6])
    assert (named(together), peaks(together)) == ([("broker_loss", [3, 4])], [12])


def test_a_leader_that_was_reported_itself_has_stalled_whatever_befalls_its_followers_later() -> None:
    stalled = [*of("pause", 2, at=5), *of("resume", 2, at=9.5)]
    rows = played([*stalled, *of("kill", 1, at=40)], 60, brokers=THREE, lag_millis=2500)
    assert named(rows) == [("leader_stall", [2]), ("broker_loss", [1])]


def test_a_loss_that_proves_to_be_a_clean_stop_becomes_one() -> None:
    leads_nothing = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1]] * 3
    stopped, crashed = of("stop", 3, at=10), of("kill", 1, at=30)
    back = played([*stopped, *of("start", 3, at=50)], 100, partitions=12, assignments=leads_nothing)
    alone = proven_late(back, 3)
    both = proven_late(played([*stopped, *crashed], 60, partitions=12, assignments=leads_nothing), 3)
    assert (named(alone), peaks(alone)) == ([("controlled_shutdown", [3])], [12])
    assert named(both) == [("controlled_shutdown", [3]), ("broker_loss", [1])]


def test_a_clean_stop_after_an_unclean_election_is_an_incident_of_its_own() -> None:
    faults = [
        *of("kill", 2, at=4), *of("start", 2, at=20), *of("kill", 1, at=20.5), *of("start", 1, at=35),
        *of("stop", 5, at=335), *of("start", 5, at=343),
    ]  # fmt: skip
    pairs = [[1, 2], [1, 2], [2, 1], [2, 1], [3, 4], [4, 5], [5, 6], [6, 3]]
    rows = played(
        faults, 420, partitions=8, replication_factor=2, min_insync_replicas=1, assignments=pairs,
        unclean_leader_election=True,
    )  # fmt: skip
    assert named(rows) == [("unclean_election", [1, 2]), ("controlled_shutdown", [5])]


def test_what_a_closed_incident_learns_survives_a_restart_of_the_job() -> None:
    link = {"link": [1, 2]}
    flapping: list[Fault] = [
        (at, "release", link) if number % 2 else (at, "slow", link | {"records_per_second": 5})
        for number, at in enumerate(range(60, 300, 8))
    ]
    restarts = [*of("stop", 4, at=5), *of("start", 4, at=95), *of("stop", 5, at=135), *of("start", 5, at=165)]
    moved: Fault = (20, "reassign", {"topic": "orders", "partition": 6, "replicas": [1, 2, 3]})
    faults = sorted([*restarts, moved, *flapping], key=lambda fault: fault[0])
    placed = [*[[1, 2, 3]] * 6, [1, 4, 2], [1, 5, 2]]
    rows = proven_late(played(faults, 370, lag_millis=2500, partitions=8, assignments=placed), 4, 5)

    single = table_of([[row] for row in rows], IncidentGaps())

    assert table_of([[row] for row in rows], IncidentGaps(), restart=True) == single
    assert ("rolling_restart", [4, 5]) in named(rows)


def test_of_two_incidents_about_a_broker_the_one_of_its_own_kind_comes_first() -> None:
    common: dict[str, Any] = {"cluster_id": "c", "cluster": "c", "updated_at": START, "version": 1}
    loss = Incident(incident_id="loss:1", base=Family.LOSS, opened_at=START, lost={3}, **common)
    lag = Incident(incident_id="lag:1", base=Family.LAG, opened_at=START + SECOND, **common)
    loss.blamed[3] = lag.blamed[3] = 1
    found = [incident_blaming(family, frozenset({3}), [loss, lag], START, ConfiguredTimes()) for family in FAMILIES]
    assert found == [loss, lag]


def test_an_incident_has_the_id_of_its_first_event() -> None:
    rows = played(of("kill", 2, at=10), 30)
    first = next(row for row in rows if row.cause == "fenced")
    assert table_of([rows], IncidentGaps()).keys() == {f"loss:{first.event_ids[0]}"}


def test_a_follower_that_lagged_and_is_gone_may_have_been_stopped_cleanly() -> None:
    """It leads nothing and is in no ISR, so its clean stop leaves no trace in the log; of a leader it would."""
    topic = {"partitions": 2, "assignments": [[1, 2, 3], [2, 1, 3]], "records_per_second": 20}
    slow = (5.0, "slow_disk", {"broker": 3, "records_per_second": 1})
    (row,) = standing(played([slow, *of("stop", 3, at=40)], 80, brokers=THREE, **topic))
    assert row["summary"].startswith("broker 3 was lost, or stopped cleanly, which the log cannot tell: ")
    rows = standing(played([slow, *of("kill", 2, at=40)], 80, brokers=THREE, **topic))
    assert any(row["summary"].startswith("broker 2 was lost: ") for row in rows), "it led a partition"


def test_brokers_that_a_live_controller_fences_to_the_last_one_may_only_not_reach_it() -> None:
    """A firewall between brokers and controllers: each runs, and starting them again would change nothing."""
    cut: list[Fault] = [(20.0, "cut", {"link": [broker, -100]}) for broker in SIX]
    (row,) = standing(played(cut, 40))
    assert row["summary"].startswith(
        "brokers 1, 2, 3, 4, 5 and 6 were lost, or did not reach the controllers, as no other broker was left: "
    )
    assert row["next_step"] == (
        "check whether brokers 1, 2, 3, 4, 5 and 6 reach the controllers, and start them if they do not run"
    )
    (row, *_) = standing(played(cut[1:], 40))
    assert "reach the controllers" not in row["summary"], "broker 1 does"
