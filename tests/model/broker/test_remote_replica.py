"""Followers as the leader sees them; more in G23 of the transcripts."""

from __future__ import annotations

from streaming.model.broker.leader import RemoteReplica, for_new_leader, for_reelected_leader, is_caught_up


def test_the_window_is_inclusive() -> None:
    remote = RemoteReplica(log_end_offset=5, last_caught_up_ms=1_000)
    assert is_caught_up(remote, 6, 31_000, 30_000)
    assert not is_caught_up(remote, 6, 31_001, 30_000)


def test_a_follower_at_the_log_end_is_caught_up_however_long_ago_it_fetched() -> None:
    assert is_caught_up(RemoteReplica(log_end_offset=6), 6, 10**9, 30_000)


def test_a_new_term_gives_isr_members_one_window_and_forgets_positions() -> None:
    assert (
        for_new_leader(in_isr=True, now=500).last_caught_up_ms,
        for_new_leader(in_isr=True, now=500).log_end_offset,
    ) == (500, -1)
    assert for_new_leader(in_isr=False, now=500).last_caught_up_ms == 0


def test_a_reelected_leader_keeps_positions() -> None:
    remote = RemoteReplica(10, 10, 100, 100, 7)
    assert RemoteReplica(10, 12, 500, 500, 7) == for_reelected_leader(remote, in_isr=True, start_offset=12, now=500)
    assert RemoteReplica(10, 10, 0, 0, 7) == for_reelected_leader(remote, in_isr=False, start_offset=12, now=500)
