"""Whatever happens to brokers, an idempotent producer's records stand once, and transactions are whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from streaming.model.clients.transactional_producer import Phase
from streaming.model.constants import Error
from streaming.model.messages.clients import TRANSACTION_STATE

BROKERS = (1, 2, 3)


def trouble(it: Any, random: Random, client: int) -> None:
    """One broker dies and comes back, freezes for a while, or is not heard by the client."""
    broker = random.choice(BROKERS)
    kind = random.choice(["kill", "pause", "hold", "nothing"])
    if kind == "kill":
        it.cluster.kill(broker)
        it.run(it.cluster.now + random.randrange(1_000, 15_000))
        it.start(broker)
    elif kind == "pause":
        it.cluster.pause(broker)
        it.run(it.cluster.now + random.randrange(1_000, 15_000))
        it.cluster.resume(broker)
    elif kind == "hold":
        it.hold(broker, client)
        it.run(it.cluster.now + random.randrange(1_000, 5_000))
        it.release(broker, client)
    it.run(it.cluster.now + random.randrange(10, 12_000))


def values_in(it: Any, key: Any) -> list[Any]:
    return [value for batch in it.batches(it.state(key).leader, key) for value in batch.values]


@pytest.mark.parametrize("seed", range(6))
def test_statement_24_an_idempotent_producer_writes_each_record_once_and_in_order(lab: Any, seed: int) -> None:
    random, it = Random(seed), lab()
    (key,) = it.topic("t", [(1, 2, 3)], min_isr=2)
    producer = it.producer()
    for number in range(12):
        it.send(producer, key, values=(2 * number,))
        it.send(producer, key, values=(2 * number + 1,))
        if number % 3 == 0:
            trouble(it, random, producer.node)
    it.run(it.cluster.now + 60_000)
    assert [sent.error for sent in producer.sent] == [Error.NONE] * 24
    assert values_in(it, key) == list(range(24))


def shown(it: Any, key: Any) -> Iterator[Any]:
    """What a reader of committed transactions gets."""
    leader = it.cluster.brokers[it.state(key).leader].leadership.led[key]
    stable = leader.last_stable_offset
    for batch in leader.replica.log.batches_between(0, stable):
        skipped = any(
            it.producer_id == batch.producer_id and it.first_offset <= batch.base_offset < it.marker_offset
            for it in leader.aborted_between(0, stable)
        )
        if batch.marker is None and not skipped:
            yield from batch.values


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_transactions_are_shown_whole_or_not_at_all(lab: Any, seed: int, version: int) -> None:
    """The producer commits every other transaction; brokers fail as they like."""
    random, it = Random(seed), lab(transaction_version=version)
    it.topic(TRANSACTION_STATE, [(3, 1, 2)], min_isr=2)
    keys = it.topic("t", [(1, 2, 3), (2, 3, 1)], min_isr=2)
    producer = it.transactional("payments")
    for number in range(8):
        it.run_until(lambda: producer.phase is Phase.READY)
        it.transact(producer, producer.begin)
        for key in keys:
            it.send(producer, key, values=(number,))
        if number % 3 == 1:
            trouble(it, random, producer.node)
        it.transact(producer, producer.commit if number % 2 == 0 else producer.abort)
        if number % 3 == 2:
            trouble(it, random, producer.node)
    it.run_until(lambda: producer.phase is Phase.READY)
    it.run(it.cluster.now + 30_000)
    assert [Counter(shown(it, key)) for key in keys] == [Counter([0, 2, 4, 6])] * 2
