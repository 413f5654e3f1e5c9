"""A cluster on ZooKeeper: sessions, the controller, and what it does to partitions.

Brokers 1, 2 and 3 start in this order on a network of 1 ms, so broker 1 is the first controller.
"""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.events import Cause
from streaming.contracts.records import LeaderChange, Partition, PartitionChange
from streaming.model.messages.network import CONTROLLER

QUIET = {"start_up_ms": 0, "auto_leader_rebalance_enable": False}
OLD_AND_NEW = pytest.mark.parametrize("preset", ["legacy-2.4", "zk-3.x"])


def active(it: Any) -> set[int]:
    """Who believes to be the controller."""
    return {node for node, broker in it.cluster.brokers.items() if broker.controller.active == node}


def test_statement_19_zookeeper_keeps_leader_and_isr_and_counts_their_versions(lab: Any) -> None:
    it = lab(preset="legacy-2.4", **QUIET)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 1, 100)
    it.run(9_500)
    it.hold(1, 3)
    it.run(30_000)
    it.release(1, 3)
    it.run(32_000)
    assert [(at // 1_000, step.after.isr, step.after.partition_epoch) for at, step in it.steps(key)] == [
        (20, (1, 2), 1),
        (30, (1, 2, 3), 2),
    ]
    assert {step.after.leader_epoch for _, step in it.steps(key)} == {0}  # what a leader writes begins no epoch
    records = [record for batch in it.batches_since(0) for record in batch]
    assert [type(it) for it in records if isinstance(it, Partition | PartitionChange)] == [
        Partition,
        PartitionChange,
        PartitionChange,
    ]


@OLD_AND_NEW
def test_statement_10_a_member_leaves_by_its_session_or_by_its_lag(lab: Any, preset: str) -> None:
    it = lab(preset=preset, **QUIET)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 1, 100)
    it.run(10_000)
    it.cluster.kill(3)
    it.hold(1, 2)
    it.run(100_000)
    assert it.causes(key) == [Cause.FENCED, Cause.LAG]
    assert it.state(key).isr == (1,)


@OLD_AND_NEW
def test_statement_15_who_returns_joins_once_it_has_what_is_committed(lab: Any, preset: str) -> None:
    it = lab(preset=preset, replica_fetch_max_records=100, **QUIET)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 1_000, 200)
    it.run(1_000)
    it.cluster.kill(3)
    it.run(30_000)
    it.start(3)
    it.run(30_500)
    assert it.cluster.controller.registry.brokers[3].is_active
    assert it.state(key).isr == (1, 2)  # alive, but far behind
    it.run_until(lambda: it.state(key).isr == (1, 2, 3))
    assert it.log_end(3, key) >= it.high_watermark(3, key)
    assert it.high_watermark(1, key) - it.log_end(3, key) < 1_000


@OLD_AND_NEW
def test_the_controller_is_one_of_the_brokers_and_another_follows_it(lab: Any, preset: str) -> None:
    it = lab(preset=preset, **QUIET)
    first, second = it.topic("t", [(1, 2, 3), (2, 3, 1)])
    assert active(it) == {1}
    it.run(10_000)
    it.cluster.kill(1)
    it.run(40_000)
    assert active(it) == {2}
    changes = [record for batch in it.batches_since(0) for record in batch if isinstance(record, LeaderChange)]
    assert [(it.controller, it.epoch) for it in changes] == [(1, 1), (2, 2)]
    assert (it.state(first).leader, it.state(first).isr) == (2, (2, 3))
    assert (it.state(second).leader, it.state(second).isr) == (2, (2, 3))


def test_nothing_is_elected_while_there_is_no_controller(lab: Any) -> None:
    """A leader dies together with the controller: its partitions wait for the next controller, not longer."""
    it = lab(preset="zk-3.x", **QUIET)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.run(10_000)
    it.cluster.kill(1)
    it.run(23_900)
    assert (it.state(key).leader, active(it)) == (1, set())
    it.run(30_100)
    # The new controller first takes the dead leader out, then elects: two writes, two leader epochs.
    assert [(step.after.leader, step.after.leader_epoch) for _, step in it.steps(key)] == [(-1, 1), (2, 2)]


def test_a_controller_that_was_frozen_is_obeyed_by_nobody(lab: Any) -> None:
    it = lab(preset="zk-3.x", **QUIET)
    (key,) = it.topic("t", [(2, 3, 1)])
    it.run(10_000)
    it.hold(CONTROLLER, 1)  # it does not hear that its session has ended
    it.hold(1, CONTROLLER)
    it.run(40_000)
    assert active(it) == {1, 2}
    assert it.state(key).isr == (2, 3)
    before = it.state(key)
    it.cluster.kill(2)
    it.run(70_000)
    assert it.state(key).leader == 3
    assert it.state(key).leader_epoch > before.leader_epoch
    it.release(1, CONTROLLER)
    it.release(CONTROLLER, 1)
    it.run(72_000)
    assert active(it) == {3}
    assert it.state(key).isr == (1, 3)


def test_a_leader_cut_off_from_zookeeper_leads_on_until_somebody_tells_it(lab: Any) -> None:
    """N12 on ZooKeeper: what it takes meanwhile with acks=1 is truncated later."""
    it = lab(preset="zk-3.x", **QUIET)
    (key,) = it.topic("t", [(3, 1, 2)])
    it.write(key, 10)
    it.run(10_000)
    for link in ((3, CONTROLLER), (CONTROLLER, 3), (1, 3)):
        it.hold(*link)
    it.run(35_000)
    assert it.state(key).leader == 1
    assert key in it.cluster.brokers[3].leadership.led
    for link in ((3, CONTROLLER), (CONTROLLER, 3), (1, 3)):
        it.release(*link)
    it.run(40_000)
    assert key not in it.cluster.brokers[3].leadership.led
    assert it.state(key).isr == (1, 2, 3)


def test_the_last_member_stays_in_the_isr_of_a_partition_that_nobody_leads(lab: Any) -> None:
    """N19."""
    it = lab(preset="zk-3.x", **QUIET)
    (key,) = it.topic("t", [(3,)])
    it.run(10_000)
    it.cluster.kill(3)
    it.run(40_000)
    assert (it.state(key).leader, it.state(key).isr) == (-1, (3,))
    it.start(3)
    it.run(41_000)
    assert (it.state(key).leader, it.causes(key)) == (3, [Cause.FENCED, Cause.UNFENCED])


@OLD_AND_NEW
@pytest.mark.parametrize("broker", [1, 2])
def test_a_controlled_shutdown_leaves_nothing_without_a_leader(lab: Any, preset: str, broker: int) -> None:
    """Be it the controller's own broker or another."""
    it = lab(preset=preset, **QUIET)
    first, second = it.topic("t", [(1, 2, 3), (2, 3, 1)])
    it.keep_writing(first, 1, 20)
    it.keep_writing(second, 1, 20)
    it.run(10_000)
    it.cluster.stop(broker)
    it.run(13_000)
    assert broker not in it.cluster.brokers
    assert it.cluster.refused == 0
    for key in (first, second):
        assert broker not in it.state(key).isr
        assert it.causes(key) == [Cause.CONTROLLED_SHUTDOWN]


def test_a_broker_that_nobody_lets_go_goes_after_three_attempts(lab: Any) -> None:
    it = lab(preset="zk-3.x", **QUIET)
    (key,) = it.topic("t", [(2, 3)])
    it.run(10_000)
    it.cluster.kill(3)
    it.run(40_000)
    it.cluster.stop(2)  # the last of the ISR
    it.run(54_999)
    assert 2 in it.cluster.brokers
    it.run(55_100)
    assert 2 not in it.cluster.brokers
    assert (it.state(key).leader, it.state(key).isr) == (-1, (2,))


def test_the_controller_hears_of_isrs_in_batches(lab: Any) -> None:
    """Before 2.7: told at the first look after five quiet seconds; until then its memory is of the past."""
    it = lab(preset="legacy-2.4", **QUIET)
    (key,) = it.topic("t", [(2, 3, 1)])
    it.keep_writing(key, 1, 100)
    it.hold(2, 3)
    it.run(15_100)
    assert it.state(key).isr == (1, 2)
    known = it.cluster.brokers[1].controller
    assert known.remembered.partitions[key].isr == (2, 3, 1)
    it.run(20_000 - 10)
    assert known.remembered.partitions[key].isr == (2, 3, 1)
    it.run(22_600)
    assert known.remembered.partitions[key].isr == (1, 2)


@pytest.mark.parametrize(("tolerated", "leader"), [(40, 3), (50, 1)])
def test_leaders_return_where_more_than_the_tolerated_share_is_missing(lab: Any, tolerated: int, leader: int) -> None:
    """Half of what broker 3 should lead is led by another; looked at 5 s after the election, then each 300 s."""
    it = lab(preset="zk-3.x", start_up_ms=0, leader_imbalance_per_broker_percentage=tolerated)
    (moved,) = it.topic("a", [(3, 1, 2)])
    it.run(10_000)
    it.cluster.stop(3)
    it.run(12_000)
    it.start(3)
    it.run(13_000)
    (kept,) = it.topic("b", [(3, 2, 1)])
    it.run(305_000)
    assert (it.state(moved).leader, it.state(kept).leader) == (1, 3)
    it.run(305_100)
    assert (it.state(moved).leader, it.state(kept).leader) == (leader, 3)


@OLD_AND_NEW
def test_a_deleted_topic_leaves_nothing_behind(lab: Any, preset: str) -> None:
    it = lab(preset=preset, **QUIET)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.run(10_000)
    it.cluster.kill(3)
    it.run(40_000)
    it.cluster.admin.delete_topic(key.topic_id)
    it.run(41_000)
    assert key not in it.cluster.controller.registry.partitions
    assert [broker for broker, disk in it.cluster.disks.items() if key in disk.replicas] == [3]
    it.start(3)
    it.run(45_000)
    assert not any(key in disk.replicas for disk in it.cluster.disks.values())


def test_statement_18_the_first_that_registered_leads_only_by_the_historical_rule(lab: Any) -> None:
    """Brokers registered in the order 1, 2, 3; the replicas stand in the order 1, 3, 2."""
    for preset, leader in (("legacy-0.8", 2), ("legacy-2.4", 3)):
        it = lab(preset=preset, **QUIET)
        (key,) = it.topic("t", [(1, 3, 2)])
        it.run(10_000)
        it.cluster.kill(1)
        it.run(30_000)
        assert it.state(key).leader == leader


@pytest.mark.parametrize(("preset", "shrinks"), [("legacy-0.8", 2), ("legacy-2.4", 0)])
def test_statement_13_bursts_throw_followers_out_only_where_lag_is_counted_in_messages(
    lab: Any, preset: str, shrinks: int
) -> None:
    """N23: 9,000 records just before the leader looks, twice."""
    it = lab(preset=preset, latency_ms=2, **QUIET)
    (key,) = it.topic("t", [(1, 2, 3)])
    for tick in (10_000, 15_000):
        it.run(tick - 2)
        it.write(key, 9_000)
    it.run(20_000)
    assert it.causes(key).count(Cause.LAG) == shrinks
    assert set(it.state(key).isr) == {1, 2, 3}


def test_an_unclean_election_is_allowed_by_default_in_0_8(lab: Any) -> None:
    it = lab(preset="legacy-0.8", **QUIET)
    (key,) = it.topic("t", [(2, 3)])
    it.cluster.kill(3)
    it.run(20_000)
    it.write(key, 5)
    it.cluster.kill(2)
    it.run(40_000)
    assert (it.state(key).leader, it.state(key).isr) == (-1, (2,))
    it.start(3)
    it.run(41_000)
    assert (it.state(key).leader, it.state(key).isr) == (3, (3,))
    assert it.causes(key)[-1] == Cause.UNCLEAN_ELECTION
    assert it.log_end(3, key) == 0
