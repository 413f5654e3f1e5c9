"""Followers as the leader sees them (G23), and leader epochs in logs (G24)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.model.broker.remote_replica import (
    RemoteReplica,
    fetched,
    for_new_leader,
    for_reelected_leader,
    is_caught_up,
)
from streaming.model.storage.log import Log


def test_last_caught_up_time_follows_the_fetch_before_the_last() -> None:
    """G23."""
    times = []
    remote = RemoteReplica()
    for offset, leader_end, now in ((5, 10, 100), (10, 15, 200), (15, 15, 300)):
        remote = fetched(remote, offset, leader_end, now, broker_epoch=7)
        times.append(remote.last_caught_up_ms)
    assert times == [0, 100, 300]
    assert remote.broker_epoch == 7


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


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, (0, 0)), (1, (1, 10)), (2, (1, 10)), (3, (3, 20)), (4, (3, 20)), (5, (5, 30)), (6, (-1, -1))],
)
def test_end_offset_for_leader_epoch(epoch: int, expected: tuple[int, int]) -> None:
    """G24."""
    log = Log()
    log.append_fetched(30, ((1, 0), (3, 10), (5, 20)))
    assert expected == log.end_offset_for(epoch)


def test_an_epoch_that_wrote_nothing_gives_way() -> None:
    log = Log()
    log.begin_epoch(1, 0)
    log.append(5)
    log.begin_epoch(2, 5)
    log.begin_epoch(3, 5)
    assert log.epochs == [(1, 0), (3, 5)]


@given(
    shared=st.lists(st.integers(1, 5), max_size=4),
    leader=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=3),
    follower=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=3),
)
def test_truncation_ends_at_the_common_prefix(
    shared: list[int], leader: list[tuple[int, int]], follower: list[tuple[int, int]]
) -> None:
    """Two logs with a common past and different tails (odd and even epochs) agree once the follower has truncated."""
    logs = []
    for tail, parity in ((leader, 0), (follower, 1)):
        log = Log()
        epoch = 0
        for count in shared:
            epoch += 2
            log.begin_epoch(epoch, log.end)
            log.append(count)
        for growth, count in tail:
            epoch += 2 * growth
            log.begin_epoch(epoch + parity, log.end)
            log.append(count)
        logs.append(log)
    ours, theirs = logs
    ours.begin_epoch(1_000, ours.end)
    for _ in range(20):
        if (diverging := ours.diverges_from(theirs.last_epoch, theirs.end)) is None:
            break
        theirs.truncate_to_diverging(*diverging)
    else:
        pytest.fail("the logs never agreed")
    assert sum(shared) == theirs.end
