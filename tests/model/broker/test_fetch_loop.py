"""Followers pull, one open fetch to each leader, whatever the number of partitions."""

from __future__ import annotations

from typing import Any

from streaming.model.messages.replication import FetchRequest


def test_a_follower_keeps_one_fetch_open_and_waits_for_data_statement_06(lab: Any) -> None:
    """One request in 500 ms while nothing is written, however many partitions; an answer at once when something is."""
    it = lab(brokers=(1, 2))
    keys = it.topic("t", [(1, 2)] * 20)
    it.run(2_000)
    fetches = count_fetches(it)
    it.run(7_000)
    idle = len(fetches)
    assert 9 <= idle <= 10
    written = it.cluster.now
    it.write(keys[7])
    it.run(written + 10)
    assert it.log_end(2, keys[7]) == 1
    assert len(fetches) > idle


def count_fetches(it: Any) -> list[FetchRequest]:
    """Every fetch that reaches broker 1 from now on."""
    seen: list[FetchRequest] = []
    broker = it.cluster.brokers[1]
    receive = broker.receive

    def counting(now: int, payload: Any) -> None:
        if isinstance(payload, FetchRequest):
            seen.append(payload)
        receive(now, payload)

    broker.receive = counting
    return seen
