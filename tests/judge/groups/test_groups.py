"""The judge's own rule of groups, and what it makes of what was told."""

from __future__ import annotations

from random import Random

import pytest

from tests.judge.groups.applications import Application, Protocol, Reading
from tests.judge.groups.logs import Log, LogKind, Transaction
from tests.judge.groups.rule import BEYOND, LOSING, STUCK, Episode, Story, Watch, reason, stories
from tests.judge.groups.verdicts import Tellings, is_enough, judged_stories

STEP = 10


class Played:
    """One group in one partition, looked at every ten seconds, and answered for every thirty."""

    def __init__(self, kind: LogKind = LogKind.PLAIN, protocol: Protocol = Protocol.CLASSIC) -> None:
        self.log, self.now, self.watch = Log("orders", 0, kind, 1.0), 0, Watch()
        self.reading = Reading(self.log, 10, 5, committed=0)
        self.group = Application("g", protocol, {self.log.part: self.reading})

    def live(self, seconds: int, *, answers: bool = True) -> Played:
        for _ in range(0, seconds, STEP):
            self.now += STEP
            start = self.log.start
            self.log.step(self.now, STEP, Random(0))
            self.group.step(self.now, STEP)
            self.watch.follow(self.now, self.group, {self.log.part: start})
            if answers and self.now % 30 == 0:
                self.watch.answered(self.now, self.group, {self.log.part: self.log.start})
        return self

    def delete(self, until: int) -> None:
        start = self.log.start
        self.log.delete(until)
        self.watch.follow(self.now, self.group, {self.log.part: start})

    def told(self) -> dict[str, tuple[float, float | None]]:
        return {
            each.alert: (each.begin, each.due) for each in self.watch.episodes(self.now) if each.alert in _OF_CONDITIONS
        }


_OF_CONDITIONS = {STUCK, BEYOND, LOSING}


def test_a_group_that_stands_still_for_a_quarter_of_an_hour_must_be_told() -> None:
    play = Played().live(600)
    play.reading.is_paused = True
    assert play.live(800).told() == {}
    assert play.live(600).told() == {STUCK: (600 + STEP + 840, 630 + 900 + 150)}


@pytest.mark.parametrize("kind", ["nobody reads", "behind a transaction", "marker", "aborted", "replays", "pauses"])
def test_what_is_no_standstill_is_told_by_no_rule(kind: str) -> None:
    play = Played().live(60)
    log, reading = play.log, play.reading
    if kind == "nobody reads":
        reading.is_subscribed = False
    elif kind in {"behind a transaction", "aborted"}:
        log.kind, log.transaction = LogKind.TRANSACTIONAL, Transaction(log.end, 120 if kind == "aborted" else 1e9, True)
        log.end += 5
    elif kind == "marker":
        log.rate = 0
        log.gaps.append((log.end, log.end + 1))
        log.end += 1
        reading.commits_records = True
    for _ in range(6):
        if kind == "replays":
            reading.set(0)
        reading.is_paused = kind == "pauses"
        if kind == "aborted" and log.transaction is None:
            log.transaction = Transaction(log.end, 1e9, True)
        play.live(400)
        reading.is_paused = False
        play.live(100)
    assert play.told() == {}


def test_beyond_the_end_is_told_after_two_minutes_whoever_reads() -> None:
    play = Played().live(60)
    play.log.rate, play.reading.is_paused, play.reading.is_subscribed = 0, True, False
    play.reading.set(play.log.end + 5)
    assert play.live(300).told() == {BEYOND: (70 + 60, 90 + 120 + 150)}


@pytest.mark.parametrize("paused", [True, False], ids=["shown", "committed behind before an answer"])
def test_a_loss_is_told_if_an_answer_shows_it(*, paused: bool) -> None:
    play = Played().live(600)
    play.reading.is_paused = True
    play.live(60)
    play.delete(play.log.end - 5)
    play.reading.is_paused = paused
    assert play.live(60).told() == {LOSING: (660, 690 + 150 if paused else None)}


def test_what_was_read_before_it_was_deleted_need_not_be_told() -> None:
    play = Played().live(600)
    play.reading.every = 120
    play.live(20)
    play.delete(play.log.end)
    assert play.live(60).told() == {LOSING: (620, None)}


def test_a_long_silence_lets_the_waiting_begin_again() -> None:
    play = Played().live(600)
    play.reading.is_paused = True
    play.live(600).live(400, answers=False).live(1_200)
    assert play.told() == {STUCK: (600 + STEP + 840, 1_620 + 900 + 150)}


def test_partitions_that_overlap_are_one_story() -> None:
    episodes = [
        Episode(STUCK, "g", "a-0", 0, 50, 100),
        Episode(STUCK, "g", "a-1", 100, None, 200),
        Episode(STUCK, "g", "a-2", 201, 260, 300),
        Episode(STUCK, "h", "a-1", 0, None, 400),
    ]
    (first, second) = stories(episodes)
    assert first == Story(STUCK, "g", 0, 50, 200, frozenset({"a-0"}), frozenset({"a-0", "a-1"}))
    assert (second.begin, second.due) == (201, 260)
    moments = (("g", 150), ("g", 200.5), ("h", 1), ("i", 1))
    assert [reason(STUCK, group, at, episodes) for group, at in moments] == [True, False, True, False]


def test_a_story_is_told_once_in_time_of_its_partitions() -> None:
    episodes, told = [Episode(STUCK, "g", "a-0", 10, 50, 100)], Tellings()

    def wrong(*spans: tuple[float, float]) -> str:
        fired = [{"alert": STUCK, "labels": {"subject": "g"}, "began": began, "last": last} for began, last in spans]
        fired.append({"alert": "IsrwatchIncidentOpen", "labels": {}, "began": 20, "last": 30})
        (story,) = judged_stories(episodes, fired, told, 0, 200)
        return str(story["wrong"])

    assert wrong() == "never reported"
    assert wrong((20, 30), (40, 60)) == "reported 20 to 30, 40 to 60"
    assert wrong((60, 90)) == "10 s late"
    assert wrong((20, 130)) == "reported for 30 s too long"
    assert wrong((20, 90)) == "reported of nothing"


def test_two_of_a_hundred_stories_may_be_told_wrongly() -> None:
    right, wrong = {"wrong": ""}, {"wrong": "never reported"}
    shares = ([], [right] * 98 + [wrong] * 2, [right] * 97 + [wrong] * 3)
    assert [is_enough([{"stories": each}]) for each in shares] == [True, True, False]
