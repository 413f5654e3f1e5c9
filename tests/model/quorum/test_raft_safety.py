"""Raft under every schedule: messages delivered in any order, lost, voters that crash, timers that ring early or late.

The table checks after every step that an epoch has one leader, that logs which share a batch share everything before
it, that a leader has everything committed, and that nobody ever applies two things at one offset.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.model.messages.quorum import VoteRequest
from streaming.model.nodes.quorum.raft import LeaderState, Raft
from streaming.model.nodes.quorum.voter import Role
from tests.examples import examples

UNHURRIED = settings(
    max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
# Mostly what keeps a quorum alive, and enough of what hurts it.
ACTIONS = ["deliver"] * 8 + ["ring"] * 4 + ["append"] * 3 + ["drop", "crash", "start", "resign"]
schedules = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1_000)), min_size=40, max_size=250)


@pytest.mark.parametrize(("voters", "pre_vote"), [(3, True), (3, False), (5, True)])
@UNHURRIED
@given(schedule=schedules, seed=st.integers(0, 1_000))
def test_statement_20_nothing_committed_is_ever_lost_and_no_epoch_has_two_leaders(
    table: Callable[..., Any], voters: int, *, pre_vote: bool, schedule: list[tuple[str, int]], seed: int
) -> None:
    random = Random(seed)
    it = table(voters, lambda _, below: random.randrange(below), pre_vote=pre_vote)
    for action, number in schedule:
        it.play(action, number)
    for node in it.voters:
        if node not in it.running:
            it.start(node)
    it.pass_time(it.now + 30_000)
    leader = it.leader()
    assert [raft.role for raft in it.running.values() if raft is not leader] == [Role.FOLLOWER] * (voters - 1)
    end = leader.log.end
    it.append(leader.leader)
    it.deliver_all()
    assert leader.high_watermark == end + 1
    assert {disk.log.end for disk in it.disks.values()} == {end + 1}


def _votes_for_shorter_logs(self: Raft, request: VoteRequest) -> bool:
    return self.leader is None and self._disk.voted in {None, request.candidate}


def _votes_twice(self: Raft, request: VoteRequest) -> bool:
    return self.role is not Role.LEADER and (request.last_epoch, request.end_offset) >= self.log.position


@pytest.mark.parametrize(
    ("owner", "rule", "broken"),
    [
        (Raft, "_grants", _votes_for_shorter_logs),
        (Raft, "_grants", _votes_twice),
        (LeaderState, "high_watermark", lambda _self, end: end),
    ],
)
def test_a_rule_that_is_left_out_is_noticed(
    table: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, owner: type, rule: str, broken: Any
) -> None:
    monkeypatch.setattr(owner, rule, broken)
    with pytest.raises(AssertionError):  # noqa: PT012 - one of many schedules, at any of its steps
        for seed in range(500):
            random = Random(seed)
            it = table(3, lambda _, below, random=random: random.randrange(below), pre_vote=False)
            for _ in range(150):
                it.play(random.choice(ACTIONS), random.randrange(1_000))
