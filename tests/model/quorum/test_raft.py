"""Raft as Kafka has it, rule by rule (KIP-595, KIP-996)."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.model.nodes.quorum.raft import committed_by
from streaming.model.nodes.quorum.voter import TABLE, Role, RoleTrigger


def roles(it: Any) -> list[str]:
    return [it.running[node].role.name if node in it.running else "-" for node in it.voters]


def test_no_role_but_the_leader_resigns_and_only_candidates_win_an_epoch() -> None:
    assert [before for (before, what), after in TABLE.items() if after is Role.LEADER] == [Role.CANDIDATE]
    assert [before for (before, what) in TABLE if what is RoleTrigger.RESIGN] == [Role.LEADER]
    assert {before for before, what in TABLE if what is RoleTrigger.HIGHER_EPOCH} == set(Role)


@pytest.mark.parametrize(
    ("ends", "expected"), [([7], 7), ([7, 5, 3], 5), ([7, -1, -1], -1), ([9, 9, 3, 2, 1], 3), ([4, 2], 2)]
)
def test_the_high_watermark_is_what_a_majority_has(ends: list[int], expected: int) -> None:
    assert committed_by(ends) == expected


def test_statement_20_one_voter_leads_at_once_and_commits_alone(table: Any) -> None:
    it = table(1)
    it.append(0)
    assert (roles(it), it.running[0].epoch, it.running[0].high_watermark) == (["LEADER"], 1, 2)


def test_a_batch_is_committed_by_a_majority_and_not_by_less(table: Any) -> None:
    it = table(5)
    it.pass_time(10)
    for node in (3, 4):
        it.crash(node)
    it.append(0)
    it.deliver_all()
    assert it.running[0].high_watermark == 2
    it.crash(2)
    it.append(0)
    it.deliver_all()
    assert (it.disks[1].log.end, it.running[0].high_watermark) == (3, 2)


def test_a_leader_that_stops_names_its_successor(table: Any) -> None:
    it = table()
    it.pass_time(1_000)
    it.resign(0)
    it.crash(0)
    it.pass_time(1_200)
    assert sorted(roles(it)) == ["-", "FOLLOWER", "LEADER"]


def test_a_leader_without_a_majority_resigns(table: Any) -> None:
    it = table()
    it.pass_time(1_000)
    cut = ((0, 1), (0, 2))
    it.pass_time(5_000, *cut)
    assert it.running[0].role is not Role.LEADER
    assert it.leader().epoch > 1


@pytest.mark.parametrize(("pre_vote", "epoch"), [(True, 1), (False, 2)])
def test_a_voter_that_was_cut_off_disturbs_nobody_if_it_asks_first(table: Any, *, pre_vote: bool, epoch: int) -> None:
    it = table(pre_vote=pre_vote)
    it.pass_time(1_000)
    it.pass_time(4_000, (2, 0), (2, 1))
    it.pass_time(9_000)
    assert it.leader().epoch >= epoch
    assert (it.leader().epoch == 1) is pre_vote


def test_copies_of_an_earlier_epoch_are_not_counted_before_this_epoch_has_a_copy(table: Any) -> None:
    """Figure 8 of the Raft paper: everybody has the batch, but nobody who leads knows that it cannot be lost."""
    it = table()
    it.pass_time(1_000)
    it.append(0)
    it.deliver(0)
    it.deliver(0)
    it.crash(0)  # before the next fetches would have told it
    it.mail.clear()
    assert [it.disks[node].log.end for node in it.voters] == [2, 2, 2]
    while not any(raft.role is Role.LEADER for raft in it.running.values()):
        it.deliver(0) if it.mail else it.ring()
    leader = it.leader()
    (follower,) = (node for node, raft in it.running.items() if raft is not leader)
    while leader.leader_state.remotes[follower].log_end_offset != 2:
        it.deliver(0)
    assert (leader.high_watermark, leader.log.end) == (1, 3)
    it.deliver_all()
    assert leader.high_watermark == 3
