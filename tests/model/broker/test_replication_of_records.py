"""Records on their way through the replicas, which pull them: some have them earlier than others, some never."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.model.constants import Switches, Truncation
from streaming.model.messages.replication import FetchRequest


def test_statement_08_a_record_may_be_on_some_replicas_only_and_goes_if_it_was_not_committed(lab: Any) -> None:
    it = lab(eligible_leader_replicas=False)
    key = it.topic("t", [(1, 2, 3)])[0]
    it.write(key, 10)
    it.run(2_000)
    it.hold(1, 2)
    it.hold(1, 3)
    it.write(key, 5, acks_all=False)
    it.run(2_500)
    assert [it.log_end(broker, key) for broker in (1, 2, 3)] == [15, 10, 10]
    assert it.high_watermark(1, key) == 10
    it.cluster.kill(1)
    it.run(14_000)
    it.write(key, 1)
    it.release(1, 2)
    it.release(1, 3)
    it.start(1)
    it.run(20_000)
    assert [it.log_end(broker, key) for broker in (1, 2, 3)] == [11, 11, 11]
    assert {tuple(disk.replicas[key].log.epochs) for disk in it.cluster.disks.values()} == {((0, 0), (1, 10))}


def test_statement_36_offsets_are_dense_in_order_and_never_used_twice(it: Any) -> None:
    key = it.topic("t", [(1, 2, 3)])[0]
    ends = []
    for count in (3, 1, 5):
        it.write(key, count)
        it.run(it.cluster.now + 50)
        ends.append([it.log_end(broker, key) for broker in (1, 2, 3)])
    assert ends == [[3, 3, 3], [4, 4, 4], [9, 9, 9]]


@pytest.mark.parametrize("truncation", list(Truncation))
def test_a_shorter_leader_after_an_unclean_election_cuts_its_followers(lab: Any, truncation: Truncation) -> None:
    """Without epochs in fetches, the position beyond the leader's log is what tells (OFFSET_OUT_OF_RANGE)."""
    it = lab(eligible_leader_replicas=False, switches=Switches(truncation=truncation))
    key = it.topic("t", [(1, 2)], unclean=True)[0]
    it.write(key, 10)
    it.run(2_000)
    it.cluster.kill(2)
    it.run(12_000)
    it.write(key, 5)
    it.run(18_000)
    it.cluster.kill(1)
    it.run(30_000)
    it.start(2)
    it.run(31_000)
    assert (it.state(key).leader, it.log_end(2, key), it.log_end(1, key)) == (2, 10, 15)
    it.start(1)
    it.run(36_000)
    assert it.log_end(1, key) == 10


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
