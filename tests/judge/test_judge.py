"""The judge itself: its table, its arithmetic, its plays; and the aims that must hold in a few plays of fixed seeds."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from docs.builder.quality import QUALITY, section_of
from streaming.changes.advice.slow_brokers import LEAST_HISTORY, BrokerSpeed, SpeedSample, after_round
from streaming.contracts.events import IncidentClass
from streaming.contracts.identifiers import BrokerId, Micros
from tests.judge import clusters
from tests.judge.__main__ import KINDS as JUDGED
from tests.judge.__main__ import Kind
from tests.judge.cruise_control import CruiseControl
from tests.judge.expected import ExpectedIncident
from tests.judge.faults import DRAWERS
from tests.judge.judging import seeds
from tests.judge.matching import ReportedIncident, judged
from tests.judge.play import Play, played
from tests.judge.polls.monitor import Polling
from tests.judge.pool import CHECKOUT
from tests.judge.results import interval, rendered, result_of
from tests.judge.slow_play import RULES
from tests.judge.slow_results import slow_judged, slow_rendered
from tests.judge.steps import effects_of
from tests.judge.table import TABLE
from tests.plays import once

WHENS = {"untouched", "fenced", "disk", "stalled", "lagged", "unclean", "unsafe", "away", "moved", "died", "touched"}
# One play of each fault, none of them chosen by what is reported of it.
SEED = 1
FEW = ("crash", "unclean", "stop", "split")
"""One that costs copies, one that costs records, one that is planned, and one of the network."""
KINDS = [*FEW, *(pytest.param(kind, marks=pytest.mark.long) for kind in DRAWERS if kind not in FEW)]


def test_every_row_of_the_table_says_why_and_when() -> None:
    assert all(row.why and row.when in WHENS for row in TABLE.outcomes)
    assert all(bool(row.also) == bool(row.only_if) for row in TABLE.outcomes)


def test_no_row_of_the_table_is_hidden_by_one_before_it() -> None:
    for fault in {row.fault for row in TABLE.outcomes}:
        whens = [row.when for row in TABLE.of(fault)]
        assert len(whens) == len(set(whens))


def test_the_table_is_about_the_faults_that_are_played_and_the_classes_that_exist() -> None:
    assert {row.fault for row in TABLE.outcomes} == set(DRAWERS)
    named = {kind for row in TABLE.outcomes for kind in (row.kind, *row.also) if kind}
    assert named.isdisjoint(TABLE.unplayed)
    assert named | set(TABLE.unplayed) == {str(kind) for kind in IncidentClass}
    assert all(TABLE.unplayed.values())


def test_wilsons_interval_is_that_of_the_books() -> None:
    low, high = interval(95, 100)
    assert (round(low, 4), round(high, 4)) == (0.8882, 0.9785)
    assert interval(0, 0) == (0.0, 1.0)


def test_the_seeds_of_a_commit_are_always_the_same_and_those_of_another_are_others() -> None:
    assert [*seeds("a", 5)] == [*seeds("a", 5)]
    assert not {*seeds("a", 50)} & {*seeds("b", 50)}


def expected(*kinds: str, brokers: set[int], begin: float = 10, end: float = 50, harm: bool = True) -> ExpectedIncident:
    return ExpectedIncident(
        kinds=kinds,
        must=frozenset(brokers),
        may=frozenset(brokers),
        begin=begin,
        first=begin,
        end=end,
        harm=frozenset({"redundancy"} if harm else ()),
        trouble="",
    )


def reported(kind: str, *brokers: int, begin: float = 12, end: float = 50) -> ReportedIncident:
    return ReportedIncident(
        kind=kind, suspects=frozenset(brokers), brokers=frozenset(brokers), begin=begin, end=end, summary=""
    )


def test_an_incident_that_is_reported_of_another_broker_is_missed_and_extra() -> None:
    verdict = judged([(expected("broker_loss", brokers={1}),)], [reported("slow_follower", 2)])
    assert [one.reported_kind for one in verdict.findings] == ["missed"]
    assert [each.kind for each in verdict.extra] == ["slow_follower"]
    assert verdict.findings[0].is_silent


def test_two_crashes_may_be_reported_as_one_loss_or_as_two() -> None:
    cascade = [(expected("broker_loss", brokers={1, 2}, end=300),)]
    apart = [reported("broker_loss", 1), reported("broker_loss", 2, begin=200, end=300)]
    assert judged(cascade, [reported("broker_loss", 1, 2, end=300)]).errors == 0
    assert judged(cascade, apart).errors == 0
    assert judged(cascade, apart[:1]).errors == 1  # broker 2 was not named


def test_a_crash_that_is_reported_as_planned_work_is_silent_harm() -> None:
    verdict = judged([(expected("broker_loss", brokers={1, 2}),)], [reported("rolling_restart", 1, 2)])
    assert verdict.findings[0].is_silent
    assert not verdict.findings[0].kind_right


def test_a_stall_of_the_controller_that_the_sentence_of_a_loss_names_is_not_silent() -> None:
    both = [(expected("broker_loss", brokers={3}), expected("controller_stall", brokers={100}))]
    loss = reported("broker_loss", 3)
    assert judged(both, [loss]).findings[1].is_silent
    named = replace(loss, summary="broker 3 was lost (controller 100 stood still for 12.1 s, and then fenced broker 2)")
    stall = judged(both, [named]).findings[1]
    assert not stall.is_silent
    assert not stall.kind_right
    assert judged(both, [replace(named, begin=90, end=95)]).findings[1].is_silent


def test_a_clean_restart_that_is_reported_as_a_loss_is_a_false_alarm() -> None:
    verdict = judged([(expected("controlled_shutdown", brokers={1}, harm=False),)], [reported("broker_loss", 1)])
    assert verdict.findings[0].is_false_alarm


def test_a_clean_stop_that_no_record_proves_may_be_reported_as_a_loss_of_its_broker_alone() -> None:
    turns = replace(
        expected("rolling_restart", brokers={1, 2}, harm=False), must=frozenset({1}), unproven=frozenset({2})
    )
    assert judged([(turns,)], [reported("rolling_restart", 1, 2)]).errors == 0
    assert judged([(turns,)], [reported("rolling_restart", 1), reported("broker_loss", 2)]).errors == 0
    assert judged([(turns,)], [reported("broker_loss", 1, 2)]).findings[0].is_false_alarm


def test_a_clean_stop_that_no_record_proves_may_be_reported_with_another_loss_but_not_a_proven_one() -> None:
    stop = replace(expected("controlled_shutdown", brokers={2}, harm=False), must=frozenset(), unproven=frozenset({2}))
    proven = expected("controlled_shutdown", brokers={2}, harm=False)
    crash = expected("broker_loss", brokers={1})
    assert judged([(crash, stop)], [reported("broker_loss", 1, 2)]).errors == 0
    assert judged([(crash, stop)], [reported("broker_loss", 1, 2, 3)]).errors > 0
    assert judged([(crash, proven)], [reported("broker_loss", 1, 2)]).errors > 0
    turns = replace(expected("unsafe_shutdown", brokers={2, 3}), must=frozenset({3}), unproven=frozenset({2}))
    both = [reported("broker_loss", 1, 2), reported("controlled_shutdown", 3)]
    assert judged([(crash, turns)], both).errors == 0
    assert judged([(crash, turns)], [reported("broker_loss", 1, 2, 3)]).errors > 0


def test_two_losses_at_once_may_be_reported_as_one_that_names_all() -> None:
    both = [(expected("broker_loss", brokers={1}), expected("rack_loss", brokers={2, 3}))]
    assert judged(both, [reported("broker_loss", 1, 2, 3)]).errors == 0
    assert judged(both, [reported("broker_loss", 1)]).errors > 0
    assert judged(both, [reported("broker_loss", 1, 2), reported("broker_loss", 3)]).errors == 0
    assert judged(both, [reported("broker_loss", 1, 4), reported("rack_loss", 2, 3)]).errors > 0


def test_harm_is_not_silent_where_an_alarming_incident_explains_all_of_it_and_the_class_is_wrong_all_the_same() -> None:
    removals = frozenset({frozenset({1, 2}), frozenset({5, 3})})
    split = replace(expected("network_split", brokers={1, 5}), removals=removals)
    both = [(split, expected("slow_follower", brokers={6}))]
    explained = judged(both, [reported("slow_follower", 1, 5, 6)]).findings[0]
    hidden = judged(both, [reported("slow_follower", 1, 6)]).findings[0]
    later = judged(both, [reported("slow_follower", 1, 5, 6, begin=40)]).findings[0]
    assert (explained.is_silent, explained.kind_right, explained.reported_kind) == (False, False, "slow_follower")
    assert (hidden.is_silent, later.is_silent) == (True, True)


@pytest.mark.parametrize("seed", [863037663552, pytest.param(793559221300, marks=pytest.mark.long)])
def test_what_is_stopped_later_is_not_why_a_broker_lagged(seed: int) -> None:
    play = played(seed)
    assert play.troubles[0].kind == "split"
    assert [one.harm & {"refused"} for one in effects_of(play).of] == [{"refused"}, set()]


def test_a_slow_disk_is_not_why_a_broker_lagged_that_was_cut_off_all_the_time() -> None:
    play = played(503129481043, ("split", "slow_disk"))
    split, slow_disk = effects_of(play).of
    assert split.reports
    assert slow_disk.reports == []


@pytest.mark.parametrize(
    ("seed", "link"), [(189579013426, "2 and 6"), pytest.param(1062825957586, "1 and 3", marks=pytest.mark.long)]
)
def test_a_link_that_is_lost_on_one_side_of_a_cut_is_named_beside_it(seed: int, link: str) -> None:
    play = played(seed)
    (row,) = (row for row in play.incidents if row["incident_class"] == "network_split")
    assert f"(replication between brokers {link} lagged, too): " in row["summary"]
    assert not any(one["is_silent"] for one in result_of(play, 0.0)["findings"])


def test_of_several_sets_that_are_right_the_one_counts_that_fits() -> None:
    one, other = (expected("controlled_shutdown", brokers={broker}, harm=False) for broker in (1, 2))
    together = expected("rolling_restart", brokers={1, 2}, harm=False)
    assert judged([(together,), (one, other)], [reported("rolling_restart", 1, 2)]).errors == 0
    assert (
        judged(
            [(together,), (one, other)], [reported("controlled_shutdown", 1), reported("controlled_shutdown", 2)]
        ).errors
        == 0
    )


@once
def with_one_fault(kind: str) -> Play:
    return played(SEED, (kind,))


@pytest.mark.parametrize("kind", KINDS)
def test_of_every_fault_no_harm_is_silent_no_alarm_is_false_and_no_cause_is_proven_wrong(kind: str) -> None:
    play = with_one_fault(kind)
    result = result_of(play, 0.0)
    assert [one.kind for one in play.troubles] == [kind]
    assert (result["unexplained"], result["wrong_proven"]) == (0, [])
    assert [one["trouble"] for one in result["findings"] if one["is_silent"]] == []
    if not play.is_polled:  # of a polled cluster no order can be proven
        assert [one["trouble"] for one in result["findings"] if one["is_false_alarm"]] == []


@pytest.mark.parametrize("polling", [None, Polling()], ids=["log", "polled"])
@pytest.mark.parametrize("kind", ["controller_stall", pytest.param("isolation", marks=pytest.mark.long)])
def test_of_two_brokers_the_same_is_said(kind: str, polling: Polling | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No draw has so few: there is no third one that sees who is to blame."""
    monkeypatch.setattr(clusters, "drawn_brokers", lambda *_: (BrokerId(1), BrokerId(2)))
    play = played(SEED, (kind,), polling=polling)
    assert len(play.scenario.brokers) == 2
    result = result_of(play, 0.0)
    assert (result["unexplained"], result["wrong_proven"], result["errors"]) == (0, [], 0)


@pytest.mark.parametrize("kind", JUDGED.values(), ids=JUDGED)
def test_every_kind_of_judging_takes_what_the_command_gives_it(kind: Kind) -> None:
    inspect.signature(kind.judged).bind(7, kinds=("crash",))
    assert section_of((CHECKOUT / QUALITY).read_text(), kind.section).startswith("## ")


def test_results_are_rendered_with_their_intervals() -> None:
    results = [result_of(with_one_fault(kind), 1.0) for kind in ("crash", "stop")]
    page = rendered(results, "# Heading")
    assert "95 %" in page
    assert "| broker_loss |" in page


SLOW_PLAYS = [*seeds("1", 24)]


# In two of the four a broker is slow, in one the load is, and in one a partition moves.
@pytest.mark.parametrize("played_seeds", [SLOW_PLAYS[6:10], pytest.param(SLOW_PLAYS, marks=pytest.mark.long)], ids=len)
def test_who_is_called_slow_is_slow_and_the_table_says_so(played_seeds: list[int]) -> None:
    results = [slow_judged(seed) for seed in played_seeds]
    assert [result["failed"] for result in results if "failed" in result] == []
    found = sum(len(result["rules"][RULES[0]]["found"]) for result in results)
    assert (found, sum(result["errors"] for result in results)) == (sum(len(result["must"]) for result in results), 0)
    assert found
    page = slow_rendered(results, "# heading")
    assert f"| slow brokers found | 100.0 % ({100 * interval(found, found)[0]:.1f} to 100.0) of {found} |" in page


def test_a_broker_that_always_was_slower_is_reported_by_cruise_controls_rule_and_not_by_ours() -> None:
    usual, slower = SpeedSample(4_000, 0, 0, 0, 0), SpeedSample(200_000, 0, 0, 0, 0)
    samples = {BrokerId(number): slower if number == 1 else usual for number in range(1, 7)}
    other, speeds = CruiseControl(), dict[BrokerId, BrokerSpeed]()
    for at in range(LEAST_HISTORY + 10):
        speeds |= after_round(speeds, samples, Micros(at))
        reported = other.slow_after(samples)
    assert (reported, [broker for broker, speed in speeds.items() if speed.is_slow]) == ({1}, [])
