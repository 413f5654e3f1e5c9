"""What a running Kafka 4.3.1 cluster did in the same situation: records, their order, and the causes behind them."""

from __future__ import annotations

from typing import Any

from streaming.contracts.events import Cause
from streaming.contracts.records import (
    BrokerRegistrationChange,
    ClearElr,
    Config,
    NoOp,
    Partition,
    PartitionChange,
    RegisterBroker,
    RemoveTopic,
    Topic,
)

LIVE = {"broker_session_timeout_ms": 6_000, "replica_lag_time_max_ms": 2_500}


def kinds(batch: tuple[Any, ...]) -> list[type]:
    return [type(record) for record in batch]


def test_creating_a_topic_writes_topic_config_and_partitions_in_one_batch(it: Any) -> None:
    it.topic("t", [(1, 2, 3), (2, 3, 1)], min_isr=2)
    (batch,) = it.batches_since(500)
    assert kinds(batch) == [Topic, Config, ClearElr, Partition, Partition]
    assert [(record.leader, record.isr, record.leader_epoch) for record in batch[3:]] == [
        (1, (1, 2, 3), 0),
        (2, (2, 3, 1), 0),
    ]


def test_deleting_a_topic_writes_one_record_and_removes_every_replica(it: Any) -> None:
    keys = it.topic("t", [(1, 2, 3), (2, 3, 1)])
    it.keep_writing(keys[0], 1, 10)
    it.run(1_000)
    it.cluster.admin.delete_topic(keys[0].topic_id)
    it.run(2_000)
    assert it.batches_since(1_000) == [(RemoveTopic(topic_id=keys[0].topic_id),)]
    assert not any(disk.replicas for disk in it.cluster.disks.values())
    assert [it.causes(key) for key in keys] == [[Cause.DELETED], [Cause.DELETED]]


def test_the_log_has_a_heartbeat_each_half_second(it: Any) -> None:
    it.run(10_000)
    times = [commit.now for commit in it.commits if commit.batch.records == (NoOp(),)]
    assert times == list(range(500, 10_001, 500))


def test_a_leader_that_stood_still_expels_healthy_followers(lab: Any) -> None:
    it = lab(**LIVE)
    (key,) = it.topic("t", [(1, 2, 3)], min_isr=2)
    it.keep_writing(key, 1, 50)
    it.run(10_000)
    it.cluster.pause(1)
    it.run(13_600)
    it.cluster.resume(1)
    it.run(20_000)
    assert it.causes(key)[0] == Cause.LEADER_STALL
    assert set(it.causes(key)[1:]) == {Cause.EXPAND}
    _, first = it.steps(key)[0]
    assert (first.after.isr, first.after.elr) == ((1,), (2, 3))
    assert set(it.state(key).isr) == {1, 2, 3}


def test_a_freeze_longer_than_the_session_keeps_the_broker_epoch(lab: Any) -> None:
    it = lab(broker_session_timeout_ms=6_000)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 1, 50)
    it.run(10_000)
    it.cluster.pause(1)
    it.run(19_000)
    assert (it.state(key).leader, it.state(key).isr) == (2, (2, 3))
    it.cluster.resume(1)
    it.run(30_000)
    fence, unfence, expand = it.batches_since(10_000)
    assert kinds(fence) == [PartitionChange, BrokerRegistrationChange]
    assert [record.fenced for record in (fence[1], unfence[0])] == [1, -1]
    assert fence[1].broker_epoch == unfence[0].broker_epoch
    assert kinds(expand) == [PartitionChange]
    assert it.causes(key) == [Cause.FENCED, Cause.EXPAND]


def test_a_quick_restart_joins_before_it_is_registered_and_is_fenced_afterwards(lab: Any) -> None:
    it = lab(**LIVE)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 1, 50)
    it.run(10_000)
    it.hold(1, 3)
    it.run(14_000)
    it.release(1, 3)
    it.cluster.kill(3)
    it.start(3)
    it.run(25_000)
    registered = next(
        commit.now for commit in it.commits if commit.now > 14_000 and RegisterBroker in kinds(commit.batch.records)
    )
    assert it.causes(key) == [Cause.LAG, Cause.EXPAND, Cause.FENCED, Cause.EXPAND]
    times = [at for at, _ in it.steps(key)]
    assert 14_000 < times[1] < times[2] < registered < times[3]


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
