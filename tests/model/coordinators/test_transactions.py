"""Transactions end to end: a producer, leaders and a coordinator on three brokers."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.model.clients.transactional_producer import Phase
from streaming.model.constants import Error
from streaming.model.coordinators.transaction_log import State
from streaming.model.messages.clients import TRANSACTION_STATE
from streaming.model.storage.batch import Marker

VERSIONS = pytest.mark.parametrize("version", [0, 1, 2])


def setting(lab: Any, **options: Any) -> tuple[Any, Any, Any]:
    """Three brokers, the coordinator on 3, two partitions led by 1 and 2."""
    it = lab(**options)
    it.topic(TRANSACTION_STATE, [(3, 1, 2)], min_isr=2)
    first, second = it.topic("t", [(1, 2, 3), (2, 3, 1)], min_isr=2)
    return it, first, second


def state_of(it: Any, transactional_id: str) -> Any:
    """What every broker that coordinates it knows; exactly one does."""
    (known,) = [
        metadata
        for broker in it.cluster.brokers.values()
        for name, metadata in broker.apis.transactions.transactions()
        if name == transactional_id
    ]
    return known


def stable(it: Any, broker: int, key: Any) -> int:
    return it.cluster.brokers[broker].leadership.led[key].last_stable_offset


def written(it: Any, broker: int, key: Any) -> list[Any]:
    return [batch.marker or batch.values[0] for batch in it.batches(broker, key)]


@VERSIONS
@pytest.mark.parametrize("marker", [Marker.COMMIT, Marker.ABORT])
def test_statement_24_partitions_are_committed_or_aborted_together(lab: Any, version: int, marker: Marker) -> None:
    it, first, second = setting(lab, transaction_version=version)
    producer = it.transactional("payments")
    it.run(2_000)
    assert producer.phase is Phase.READY
    it.transact(producer, producer.begin)
    for key, value in ((first, "debit"), (second, "credit")):
        it.send(producer, key, values=(value,))
    it.run(3_000)
    assert [sent.error for sent in producer.sent] == [Error.NONE] * 2
    known = state_of(it, "payments")
    assert (known.state, set(known.partitions)) == (State.ONGOING, {first, second})
    assert (it.high_watermark(1, first), stable(it, 1, first)) == (1, 0)
    it.transact(producer, producer.commit if marker is Marker.COMMIT else producer.abort)
    it.run(4_000)
    assert producer.phase is Phase.READY
    assert state_of(it, "payments").state.name == f"COMPLETE_{marker.name}"
    for broker in (1, 2, 3):
        assert written(it, broker, first) == ["debit", marker]
        assert written(it, broker, second) == ["credit", marker]
    assert (stable(it, 1, first), stable(it, 2, second)) == (2, 2)
    aborted = it.cluster.brokers[1].leadership.led[first].replica.log.producers.aborted_between(0, 2)
    assert [(each.first_offset, each.marker_offset) for each in aborted] == ([(0, 1)] if marker is Marker.ABORT else [])


@VERSIONS
def test_one_transaction_follows_another(lab: Any, version: int) -> None:
    """Only version 2 raises the epoch each time."""
    it, first, _ = setting(lab, transaction_version=version)
    producer = it.transactional("payments")
    for number in range(3):
        it.run(2_000 + 1_000 * number)
        it.transact(producer, producer.begin)
        it.send(producer, first, values=(number,))
        it.send(producer, first, values=(number,))
        it.transact(producer, producer.commit)
    it.run(6_000)
    assert producer.phase is Phase.READY
    assert written(it, 2, first) == [it for number in range(3) for it in (number, number, Marker.COMMIT)]
    records = [batch for batch in it.batches(1, first) if batch.marker is None]
    identity = [(batch.producer_epoch, batch.base_sequence) for batch in records]
    if version == 2:
        assert identity == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    else:
        assert identity == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]


def test_statement_26_the_coordinator_is_the_leader_of_a_partition_of_transaction_state(lab: Any) -> None:
    """What it knows is a replicated log: the next leader reads it, and finishes what was decided."""
    it, _, _ = setting(lab, brokers=(1, 2, 3, 4))
    (key,) = it.topic("u", [(4, 1, 2)])
    producer = it.transactional("payments")
    it.run(2_000)
    it.transact(producer, producer.begin)
    it.send(producer, key, values=("debit",))
    it.run(3_000)
    it.hold(3, 4)
    it.transact(producer, producer.commit)
    it.run(3_100)
    assert (producer.phase, state_of(it, "payments").state) == (Phase.READY, State.PREPARE_COMMIT)
    assert (written(it, 4, key), stable(it, 4, key)) == (["debit"], 0)
    it.cluster.kill(3)
    it.run(20_000)
    assert (it.state(it.key(TRANSACTION_STATE)).leader, state_of(it, "payments").state) == (1, State.COMPLETE_COMMIT)
    assert (written(it, 4, key), stable(it, 4, key)) == (["debit", Marker.COMMIT], 2)


@VERSIONS
def test_a_new_session_fences_the_old_one_and_aborts_its_transaction(lab: Any, version: int) -> None:
    it, first, _ = setting(lab, transaction_version=version)
    old = it.transactional("payments")
    it.run(2_000)
    it.transact(old, old.begin)
    it.send(old, first, values=("old",))
    it.run(3_000)
    new = it.transactional("payments", node=1_001)
    it.run(4_000)
    assert new.phase is Phase.READY
    assert new.producer_epoch > old.producer_epoch
    assert written(it, 1, first) == ["old", Marker.ABORT]
    it.transact(old, old.commit)
    it.run(5_000)
    assert (old.phase, old.fatal) == (Phase.FATAL, Error.PRODUCER_FENCED)
    it.transact(new, new.begin)
    it.send(new, first, values=("new",))
    it.transact(new, new.commit)
    it.run(6_000)
    assert written(it, 1, first) == ["old", Marker.ABORT, "new", Marker.COMMIT]


def test_a_fenced_producer_cannot_write(lab: Any) -> None:
    it, first, _ = setting(lab)
    old = it.transactional("payments")
    it.run(2_000)
    it.transact(old, old.begin)
    it.transactional("payments", node=1_001)
    it.run(3_000)
    it.send(old, first, values=("old",))
    it.run(4_000)
    assert (old.phase, old.fatal, it.batches(1, first)) == (Phase.FATAL, Error.INVALID_PRODUCER_EPOCH, [])


@VERSIONS
def test_a_transaction_that_is_open_for_too_long_is_aborted_by_its_coordinator(lab: Any, version: int) -> None:
    """Looked at each 10 s from the coordinator's election on."""
    it, first, _ = setting(lab, transaction_version=version, transaction_timeout_ms=15_000)
    producer = it.transactional("payments")
    it.run(2_000)
    it.transact(producer, producer.begin)
    it.send(producer, first, values=("debit",))
    it.run(20_500)
    assert (state_of(it, "payments").state, stable(it, 1, first)) == (State.ONGOING, 0)
    it.run(21_000)
    assert (state_of(it, "payments").state, stable(it, 1, first)) == (State.COMPLETE_ABORT, 2)
    assert written(it, 1, first) == ["debit", Marker.ABORT]
    it.transact(producer, producer.commit)
    it.run(22_000)
    assert (producer.phase, producer.fatal) == (Phase.FATAL, Error.PRODUCER_FENCED)


def test_nothing_is_decided_below_the_minimum_isr_of_the_coordinators_log(lab: Any) -> None:
    it, first, _ = setting(lab)
    producer = it.transactional("payments")
    it.run(2_000)
    it.transact(producer, producer.begin)
    it.send(producer, first, values=("debit",))
    it.run(3_000)
    it.cluster.kill(1)
    it.cluster.kill(2)
    it.transact(producer, producer.commit)
    it.run(20_000)
    assert (producer.phase, state_of(it, "payments").state) == (Phase.COMMITTING, State.ONGOING)
    it.start(1)
    it.start(2)
    it.run(30_000)
    assert (producer.phase, state_of(it, "payments").state) == (Phase.READY, State.COMPLETE_COMMIT)
    leader = it.state(first).leader
    assert written(it, leader, first) == ["debit", Marker.COMMIT]


def test_a_transaction_that_loses_a_batch_can_only_be_aborted(lab: Any) -> None:
    it, first, second = setting(lab, delivery_timeout_ms=3_000, request_timeout_ms=2_000)
    producer = it.transactional("payments")
    it.run(2_000)
    it.transact(producer, producer.begin)
    it.send(producer, second, values=("credit",))
    it.run(3_000)
    it.cluster.pause(1)
    it.send(producer, first, values=("debit",))
    it.run(7_000)
    assert producer.has_failed
    it.cluster.resume(1)
    it.transact(producer, producer.abort)
    it.run(9_000)
    assert (producer.phase, producer.has_failed) == (Phase.READY, False)
    assert written(it, 2, second) == ["credit", Marker.ABORT]
    it.transact(producer, producer.begin)
    it.send(producer, first, values=("again",))
    it.transact(producer, producer.commit)
    it.run(10_000)
    assert written(it, 1, first)[-2:] == ["again", Marker.COMMIT]
    assert stable(it, 1, first) == it.high_watermark(1, first)
