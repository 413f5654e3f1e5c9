"""What a running Kafka 4.3.1 cluster did in the same situation: records, their order, and the causes behind them."""

from __future__ import annotations

from typing import Any

from streaming.contracts.events import Cause
from streaming.contracts.records import (
    RECOVERED,
    RECOVERING,
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


def test_offsets_are_consecutive(it: Any) -> None:
    it.topic("t", [(1, 2, 3)])
    it.run(5_000)
    following = 0
    for commit in it.commits:
        assert commit.batch.base_offset == following
        following += len(commit.batch.records)


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


def test_nobody_left_then_an_eligible_replica_returns(lab: Any) -> None:
    it = lab(broker_heartbeat_interval_ms=500)
    (key,) = it.topic("t", [(1, 2)], min_isr=2)
    it.run(10_000)
    it.cluster.pause(2)
    it.run(21_000)
    it.cluster.pause(1)
    it.run(35_000)
    leaderless = it.batches_since(21_000)[0]
    assert leaderless[0] == PartitionChange(
        topic_id=key.topic_id, partition=0, isr=(), leader=-1, elr=(1, 2), last_known_elr=(1,)
    )
    it.cluster.resume(2)
    it.run(40_000)
    unfence = it.batches_since(35_000)[0]
    assert kinds(unfence) == [BrokerRegistrationChange, PartitionChange]
    assert unfence[1] == PartitionChange(
        topic_id=key.topic_id, partition=0, isr=(2,), leader=2, elr=(1,), last_known_elr=()
    )
    assert it.causes(key)[-1] == Cause.ELR_ELECTION


def test_an_unclean_leader_recovers_with_its_next_isr_change(it: Any) -> None:
    (key,) = it.topic("t", [(1, 2)], unclean=True)
    it.keep_writing(key, 1, 100)
    it.run(10_000)
    it.cluster.kill(2)
    it.run(25_000)
    it.cluster.kill(1)
    it.run(40_000)
    assert it.state(key).leader == -1
    it.start(2)
    it.run(45_000)
    assert (it.state(key).leader, it.state(key).isr, it.state(key).leader_recovery_state) == (2, (2,), RECOVERING)
    assert it.causes(key)[-1] == Cause.UNCLEAN_ELECTION
    it.start(1)
    it.run(60_000)
    assert (it.state(key).isr, it.state(key).leader_recovery_state) == ((1, 2), RECOVERED)
    assert it.log_end(1, key) <= it.log_end(2, key)
