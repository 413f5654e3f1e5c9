"""Shared plays are what a fresh play gives, and each is played once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from streaming.contracts.codec import encode
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Observation
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests import plays
from tests.plays import SECOND, START, Plays, observations, played, polled


def source(name: str) -> SimulatedSource:
    return SimulatedSource(
        load_scenario(name), seed=1, cluster_id=ClusterId("c"), cluster="c", name="metadata_log:c", epoch=START
    )


def written(told: Iterable[Observation]) -> list[bytes]:
    return [encode(each) for each in told]


def test_a_shared_play_is_what_a_fresh_one_gives() -> None:
    fresh, shared = source("broker_loss"), played("broker_loss")
    told = fresh.poll(Micros(START + round(shared.scenario.duration) * SECOND - 1))
    assert written(observations("broker_loss")) == written(shared.observations) == written(told)
    assert shared.trace == fresh.trace()
    states = {step.topic_partition: step.after for commit in shared.commits for step in commit.transitions}
    assert {key: state for key, state in states.items() if state} == fresh.partitions()


def test_a_part_of_a_longer_play_is_the_shorter_one() -> None:
    whole, part = plays.fresh("topic_recreated", 25), plays.fresh("topic_recreated", 12)
    assert (cut := whole.until(12))._replace(seen=()) == part._replace(seen=())
    assert written(cut.observations) == written(part.observations)


def test_polls_at_whole_seconds_are_those_of_a_source() -> None:
    fresh = source("broker_loss")
    for second, told in zip((0, 1, 4, 10, 15), polled("broker_loss", (0, 1, 4, 10, 15)), strict=True):
        assert written(told) == written(fresh.poll(Micros(START + second * SECOND)))


def test_what_one_process_has_played_no_other_plays_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plays, "SHARED_SECONDS", 4)
    first = Plays(tmp_path).give("steady", 3)
    fresh = plays.fresh
    monkeypatch.setattr(plays, "fresh", lambda *_: pytest.fail("played again"))
    second = Plays(tmp_path).give("steady", 4)
    assert written(first.observations) == written(second.observations)
    assert (first.trace, first.commits, first.seconds) == (second.trace, second.commits, second.seconds)
    monkeypatch.setattr(plays, "fresh", fresh)
    assert Plays(tmp_path).give("steady", 6).seconds == 6
    assert not list(tmp_path.glob("*.new"))
