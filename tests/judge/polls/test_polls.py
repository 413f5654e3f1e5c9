"""The listeners of the model, the transcripts and twins of plays, and the judge's own rules of polled clusters."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.model.controller.metadata_writer import Commit
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met, Presence
from streaming.sources.simulated.scenario import Action, Fault
from tests.judge.expected import expectations
from tests.judge.matching import Finding, ReportedIncident
from tests.judge.play import START, Play, source_of
from tests.judge.polls.answers import Answers
from tests.judge.polls.images import Images
from tests.judge.polls.listeners import TICK_MS, Listeners
from tests.judge.polls.monitor import Polling
from tests.judge.polls.page import CLASSES, UNDRAWN, Figures, polled_rendered
from tests.judge.polls.strata import STRATA, polled, seeds_of, stratum_of
from tests.judge.polls.surroundings import Proxy, Span, Surroundings
from tests.judge.polls.transcripts import difference
from tests.judge.polls.twins import HISTORIES, twin_difference
from tests.judge.polls.verdicts import alike, named_histories
from tests.judge.table import TABLE

TWO = BrokerId(2)
CRASH = 700
"""A short play: one broker of four, 2, is killed."""


@cache
def crash() -> Play:
    return polled(CRASH)


def met_by(fault: Action, around: Surroundings, *asks: Ask, seconds: int = 20, end: Action | None = None) -> list[Met]:
    """Ask a broker (2) from second 1 on, each second; the fault is at second 5, and its end at 15."""
    commits, met = list[Commit](), list[Met]()
    source = source_of(crash().scenario, 1, on_commit=commits.append)
    simulation, addresses = source.simulation, {broker: (f"b{broker}", 9092) for broker in crash().scenario.brokers}
    answers = Answers(simulation, Images(simulation.cluster, commits), addresses, lists_fenced=True, random=Random(1))
    listeners = Listeners(simulation, answers, around, random=Random(2), take=met.append, origin=Micros(0))
    begin = simulation.cluster.now + 1
    for at, action in ((5, fault), (15, end)):
        if action is not None:
            of = BrokerId(-100) if Ask.QUORUM in asks else TWO
            simulation.agenda.at(
                begin + at * 1_000, lambda a=action, b=of: simulation.inflict(Fault(at=0, action=a, broker=b))
            )
    simulation.agenda.every(TICK_MS, begin, listeners.tick)
    simulation.agenda.every(
        1_000, begin + 1_000, lambda: [listeners.ask(BrokerQuestion(ask, TWO)) for ask in asks] and None
    )
    source.poll(Micros(START + seconds * 1_000_000))
    return met


def hows(met: list[Met], since: float = 0.0, ask: Ask = Ask.PRESENCE) -> list[Meeting]:
    """Give how questions fared, each change once."""
    of = [each.how for each in met if each.question.ask is ask and each.ended >= since * 1e6]
    return [how for place, how in enumerate(of) if not place or of[place - 1] is not how]


@pytest.mark.parametrize(
    ("fault", "around", "expected"),
    [
        (Action.KILL, Surroundings(), [Meeting.ANSWERED, Meeting.CLOSED, Meeting.REFUSED]),
        (Action.KILL, Surroundings(proxy=Proxy.CLOSES), [Meeting.ANSWERED, Meeting.CLOSED]),
        (Action.KILL, Surroundings(proxy=Proxy.HANGS), [Meeting.ANSWERED, Meeting.CLOSED, Meeting.SILENT]),
        (Action.KILL, Surroundings(proxy=Proxy.SHARED), [Meeting.ANSWERED, Meeting.CLOSED, Meeting.WRONG_NODE]),
        (Action.PAUSE, Surroundings(), [Meeting.ANSWERED, Meeting.SILENT]),
        (
            Action.LOSE_POWER,
            Surroundings(without_power=(Span(frozenset({TWO}), 5.0, 99.0),)),
            [Meeting.ANSWERED, Meeting.SILENT, Meeting.UNREACHABLE, Meeting.SILENT],
        ),
        (
            Action.KILL,
            Surroundings(without_address=(Span(frozenset({TWO}), 5.0, 99.0),)),
            [Meeting.ANSWERED, Meeting.CLOSED, Meeting.UNREACHABLE],
        ),
    ],
)
def test_what_a_dead_broker_meets_depends_on_what_is_in_front_of_it(
    fault: Action, around: Surroundings, expected: list[Meeting]
) -> None:
    assert hows(met_by(fault, around, Ask.PRESENCE))[: len(expected)] == expected


def test_a_frozen_broker_answers_all_that_waited_when_it_goes_on() -> None:
    met = met_by(Action.PAUSE, Surroundings(), Ask.PRESENCE, end=Action.RESUME)
    assert hows(met) == [Meeting.ANSWERED, Meeting.SILENT, Meeting.ANSWERED]


def test_a_question_that_waits_for_a_controller_holds_up_those_after_it_on_its_connection() -> None:
    met = met_by(Action.PAUSE, Surroundings(), Ask.QUORUM, Ask.PRESENCE)
    answered = [each.ended / 1e6 for each in met if each.how is Meeting.ANSWERED and each.question.ask is Ask.PRESENCE]
    assert max(answered) < 6.1
    assert hows(met, ask=Ask.QUORUM)[-1] is Meeting.SILENT


def test_a_stopped_broker_is_asked_and_lists_itself_until_it_is_fenced() -> None:
    met = met_by(Action.STOP, Surroundings(), Ask.PRESENCE)
    last = [each.content for each in met if isinstance(each.content, Presence)][-1]
    assert TWO in last.unfenced
    assert hows(met)[-1] is Meeting.REFUSED


def test_polling_changes_nothing_of_what_the_cluster_does() -> None:
    bare = polled(CRASH, polling=Polling(is_bare=True))
    assert crash().trace == bare.trace
    assert crash().met is not None


def test_a_play_answers_like_itself_and_not_like_one_in_which_nothing_was_killed() -> None:
    one, again = crash(), polled(CRASH)
    assert one.met is not None
    assert again.met is not None
    assert difference(one.met, again.met) is None
    assert twin_difference(one, "a clean stop", "a crash") is not None


def test_an_incident_that_names_two_histories_is_right_only_if_nothing_tells_them_apart() -> None:
    expected = expectations(crash())[0][0][0]
    reported = _reported("broker 2 is away (a clean stop and a crash look alike here: it led nothing)")
    assert named_histories(reported) == ("a clean stop", "a crash", "it led nothing")
    verdict = alike(crash(), Finding(expected=expected, reported=[reported]))
    assert verdict is not None
    assert verdict["difference"]
    assert alike(crash(), Finding(expected=expected, reported=[_reported("broker 2 was lost")])) is None


def _reported(summary: str) -> ReportedIncident:
    some = frozenset({TWO})
    return ReportedIncident(kind="controlled_shutdown", suspects=some, brokers=some, begin=0, end=1, summary=summary)


def test_the_strata_are_about_every_class_that_is_judged() -> None:
    assert {kind for stratum in STRATA for kind in stratum.classes} | {"controller_stall"} >= set(CLASSES)
    assert set(CLASSES) | UNDRAWN.keys() == {row.kind for row in TABLE.outcomes if row.kind is not None}
    assert {kind for kinds in HISTORIES.values() for kind in kinds} <= set(CLASSES)


def test_classes_are_filled_up_with_seeds_of_their_strata_alone() -> None:
    seeds = seeds_of("any", ["disk_failure"], 10)
    assert {stratum_of(next(seeds)).fault for _ in range(5)} == {"log_dir"}


def test_the_page_counts_what_polls_could_see_and_names_the_rest() -> None:
    finding = {
        "expected": "broker_loss", "kinds": ["broker_loss"], "must": [2], "may": [2], "harm": ["redundancy"],
        "first": 10.0, "end": 60.0, "reported": [], "reported_kind": "missed", "kind_right": False,
        "suspects_right": False, "is_silent": True, "is_false_alarm": False, "could_be_seen": True, "alike": None,
        "right_as_seen": False,
    }  # fmt: skip
    result = {
        "seed": 1, "preset": "tuned", "faults": ["crash"], "stratum": "a crash", "around": "-", "extra": [],
        "findings": [finding], "is_harmful": True, "unclean": [], "cpu": 1.0, "wrong_proven_count": 0,
        "most_asked": 1.5,
    }  # fmt: skip
    unseen = {**result, "findings": [{**finding, "could_be_seen": False, "end": 12.0}]}
    figures = Figures([result, unseen])
    assert (figures.silent, figures.lasting, figures.unseen) == (1, 1, 1)
    assert figures.counts == {("broker_loss", "missed"): 1, ("nothing", "nothing"): 1}
    assert "| broker_loss | 0.0 %" in polled_rendered([result, unseen], "# Page")
