"""What a broker's own counter of ISR shrinks sees, and what only the records of the controller tell."""

from __future__ import annotations

from typing import Any

from streaming.contracts.events import Cause


def test_shrinks_have_many_causes_and_brokers_count_only_their_own_statement_35(lab: Any) -> None:
    it = lab(replica_lag_time_max_ms=12_000)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 1, 100)

    it.hold(1, 3)
    it.run(30_000)
    it.release(1, 3)
    it.run(32_000)
    assert (it.causes(key), it.shrinks()) == ([Cause.LAG, Cause.EXPAND], 1)

    it.cluster.kill(2)
    it.run(45_000)
    it.start(2)
    it.run(50_000)
    it.cluster.stop(3)
    it.run(55_000)
    shrinks = [cause for cause in it.causes(key) if cause is not Cause.EXPAND]
    assert shrinks == [Cause.LAG, Cause.FENCED, Cause.CONTROLLED_SHUTDOWN]
    assert it.shrinks() == 1
