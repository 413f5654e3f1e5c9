"""Acks, minimum ISR, the wait for replicas, retries and sequences, as a producer sees them. Latency 1 ms."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.model.constants import Error
from streaming.model.messages.clients import Acks


@pytest.mark.parametrize(("acks", "answered_after"), [(Acks.NONE, 0), (Acks.LEADER, 2), (Acks.ALL, 4)])
def test_statement_22_acks_decide_when_the_producer_is_told(it: Any, acks: Acks, answered_after: int) -> None:
    """0: when it has sent. 1: there and back. all: a follower gets it by one fetch and proves it by the next."""
    (key,) = it.topic("t", [(1, 2, 3)])
    producer = it.producer(acks=acks, idempotence=False)
    it.send(producer, key)
    it.run(1_000)
    sent = it.send(producer, key)
    it.run(1_010)
    assert (sent.error, sent.decided_ms - sent.created_ms) == (Error.NONE, answered_after)
    assert [it.log_end(broker, key) for broker in (1, 2, 3)] == [2, 2, 2]


def test_statement_21_followers_pull_alike_whatever_the_acks(lab: Any) -> None:
    """Synchronous and asynchronous replication differ in the moment of the answer only."""
    seen = []
    for acks in (Acks.LEADER, Acks.ALL):
        it = lab()
        (key,) = it.topic("t", [(1, 2, 3)])
        producer = it.producer(acks=acks, idempotence=False)
        it.send(producer, key)
        it.run_until(lambda it=it, key=key: it.high_watermark(1, key) == 1)
        seen.append(it.cluster.now)
    assert seen[0] == seen[1]


def test_statement_07_a_record_is_committed_once_all_of_the_isr_have_it(it: Any) -> None:
    (key,) = it.topic("t", [(1, 2, 3)], min_isr=2)
    producer = it.producer()
    it.hold(1, 3)
    sent = it.send(producer, key)
    it.run(10_000)
    assert (it.log_end(2, key), it.log_end(3, key), it.high_watermark(1, key), sent.error) == (1, 0, 0, None)
    it.release(1, 3)
    it.run(10_010)
    assert (it.log_end(3, key), it.high_watermark(1, key), sent.error) == (1, 1, Error.NONE)


def test_statement_14_acks_all_is_refused_below_the_minimum_and_nothing_is_appended(it: Any) -> None:
    """NOT_ENOUGH_REPLICAS is retried until the ISR has recovered; acks=1 is not held up."""
    (key,) = it.topic("t", [(1, 2, 3)], min_isr=2)
    it.cluster.kill(2)
    it.cluster.kill(3)
    it.run(15_000)
    producer, careless = it.producer(), it.producer(1_001, acks=Acks.LEADER, idempotence=False)
    careful = it.send(producer, key)
    it.run(16_000)
    assert (it.log_end(1, key), careful.error) == (0, None)
    assert 5 <= careful.attempts <= 10, "each 100 ms"
    hasty = it.send(careless, key)
    it.run(17_000)
    assert (it.log_end(1, key), it.high_watermark(1, key), hasty.error) == (1, 0, Error.NONE)
    it.start(2)
    it.run(30_000)
    assert (it.log_end(1, key), it.high_watermark(1, key), careful.error) == (2, 2, Error.NONE)


@pytest.mark.parametrize(("idempotence", "copies"), [(True, 1), (False, 2)])
def test_statement_23_the_producer_sends_again_to_the_new_leader(it: Any, *, idempotence: bool, copies: int) -> None:
    """N21: the old leader dies between the commit and the answer; without idempotence the record stands twice."""
    (key,) = it.topic("t", [(1, 2, 3)])
    producer = it.producer(idempotence=idempotence)
    it.send(producer, key)
    it.run(1_000)
    it.hold(1, producer.node)
    sent = it.send(producer, key, values=("once",))
    it.run_until(lambda: it.high_watermark(2, key) == 2)
    it.cluster.kill(1)
    it.run(20_000)
    assert (it.state(key).leader, sent.error) == (2, Error.NONE)
    assert [batch.values for batch in it.batches(2, key)].count(("once",)) == copies
    assert sent.base_offset == 1 if idempotence else 2


def test_statement_16_the_slowest_of_the_isr_delays_every_commit_until_it_leaves(lab: Any) -> None:
    """G6: caught up at 3.0, written at 4.0, expelled by the check at 45; it may be acknowledged then."""
    it = lab(request_timeout_ms=60_000)
    (key,) = it.topic("t", [(1, 2, 3)])
    producer = it.producer()
    it.keep_writing(key, 1, 100)
    it.run(3_000)
    it.hold(1, 3)
    it.run(4_000)
    sent = it.send(producer, key)
    it.run(44_999)
    assert sent.error is None
    it.run(45_100)
    assert (sent.error, sent.attempts) == (Error.NONE, 1)
    assert 45_000 < sent.decided_ms < 45_010
    it.run(45_150)
    quick = it.send(producer, key)
    it.run(45_199)
    assert (quick.decided_ms - quick.created_ms, it.state(key).isr) == (4, (1, 2))


def test_statement_24_a_retry_is_recognised_among_the_last_five_batches(it: Any) -> None:
    """Five requests lose their answers; all five are sent again and none is written again, nor out of order."""
    (key,) = it.topic("t", [(1, 2, 3)])
    producer = it.producer()
    it.send(producer, key)
    it.run(1_000)
    it.hold(1, producer.node)
    sent = [it.send(producer, key, values=(number,)) for number in range(7)]
    it.run(2_000)
    assert [each.attempts for each in sent] == [1, 1, 1, 1, 1, 0, 0]
    it.cluster.kill(1)
    it.run(20_000)
    assert [each.error for each in sent] == [Error.NONE] * 7
    assert [batch.values for batch in it.batches(2, key)] == [(), *((number,) for number in range(7))]


def test_a_producer_gives_up_after_its_delivery_timeout_and_goes_on_in_a_new_epoch(lab: Any) -> None:
    it = lab(delivery_timeout_ms=5_000, request_timeout_ms=2_000)
    (key,) = it.topic("t", [(1, 2, 3)])
    producer = it.producer()
    it.send(producer, key)
    it.run(1_000)
    it.cluster.pause(1)
    sent = it.send(producer, key)
    it.run(6_000)
    assert (sent.error, sent.decided_ms) == (Error.REQUEST_TIMED_OUT, 6_000)
    it.cluster.kill(1)
    later = it.send(producer, key)
    it.run(20_000)
    assert later.error is Error.NONE
    assert [(it.producer_epoch, it.base_sequence) for it in it.batches(2, key)] == [(0, 0), (1, 0)]


def test_sessions_have_ids_of_blocks_of_a_thousand(it: Any) -> None:
    (key,) = it.topic("t", [(1, 2, 3)])
    first, second = it.producer(), it.producer(1_001)
    it.send(first, key)
    it.send(second, key)
    it.run(1_000)
    assert (first.producer_id, second.producer_id) == (0, 1), "both asked broker 1"
    third = it.producer(1_002)
    third.any_broker()
    it.send(third, key)
    it.run(2_000)
    assert third.producer_id == 1_000, "broker 2 drew the next block"
