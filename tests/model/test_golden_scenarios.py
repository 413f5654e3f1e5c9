"""Scenarios whose outcome is known, by the numbers G1 to G25 of the list they come from (see docstrings).

Times in ms. Window 30 s, checks at multiples of 15 s, session 9 s, heartbeats each 2 s, session checks each 1.125 s.
"""

from __future__ import annotations

from typing import Any

from streaming.contracts.events import Cause


def test_a_follower_that_is_always_one_batch_behind_stays(lab: Any) -> None:
    """G12: the second branch of the caught-up rule."""
    it = lab(latency_ms=25, replica_lag_time_max_ms=2_000)
    (key,) = it.topic("t", [(1, 2)])
    it.keep_writing(key, 1, 10)
    it.run(15_000)
    assert it.log_end(2, key) < it.log_end(1, key)
    assert it.steps(key) == []


def test_a_follower_slower_than_the_writers_leaves_within_one_and_a_half_windows(lab: Any) -> None:
    """G13: it reads 90 % of what is written, so its last caught-up time stands still."""
    it = lab(replica_fetch_max_records=100)
    (key,) = it.topic("t", [(1, 2)])
    it.keep_writing(key, 100, 100)
    it.run(5_000)
    it.network.slow((1, 2), 900)
    it.run_until(lambda: bool(it.steps(key)))
    frozen = it.cluster.brokers[1].leadership.led[key].remotes[2].last_caught_up_ms
    ((at, step),) = it.steps(key)
    assert step.cause == Cause.LAG
    assert 30_000 < at - frozen <= 45_005
