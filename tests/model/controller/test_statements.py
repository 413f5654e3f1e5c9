"""What people are told about replicas, leaders and the loss of brokers, as far as the controller decides it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from streaming.contracts.events import Cause
from streaming.model.constants import Error, RefusedRequest
from streaming.model.controller.placement import JavaRandom


def test_statement_01_a_partition_has_one_leader_among_its_replicas_or_none(it: Any) -> None:
    (key,) = it.topic("t", [(1, 2, 3)])
    assert len(it.state(key).replicas) == 3
    assert it.state(key).leader in it.state(key).replicas
    for broker in (1, 2, 3):
        it.cluster.kill(broker)
    it.run(25_000)
    assert (it.state(key).leader, it.state(key).replicas) == (-1, (1, 2, 3))


def test_statement_02_the_factor_comes_with_the_topic_and_changes_by_reassignment_only(lab: Any) -> None:
    it = lab(default_replication_factor=2)
    ((placed),) = it.cluster.admin.place(JavaRandom(Random(0).getrandbits))
    assert len(placed) == 2
    first, second = it.topic("t", [(1, 2), (1, 2)])
    it.cluster.kill(2)
    it.run(20_000)
    it.start(2)
    it.run(25_000)
    it.cluster.admin.alter_partition_reassignments({first: (1, 2, 3)})
    it.run(26_000)
    assert [len(it.state(key).replicas) for key in (first, second)] == [3, 2]
    assert len(it.state(first).isr) == 3


def test_statement_03_a_single_broker_has_one_replica_and_a_fenced_one_counts(lab: Any) -> None:
    it = lab(brokers=(1,))
    with pytest.raises(RefusedRequest) as refused:
        it.cluster.admin.place(JavaRandom(Random(0).getrandbits), 1, 2)
    assert refused.value.error is Error.INVALID_REPLICATION_FACTOR
    it.start(2)
    it.run(1_000)
    it.cluster.kill(2)
    it.run(15_000)
    placed = it.cluster.admin.place(JavaRandom(Random(0).getrandbits), 5, 2)
    assert placed == ((1, 2),) * 5


def test_statement_04_two_partitions_leave_one_of_three_brokers_following(it: Any) -> None:
    it.topic("t", [(1, 2, 3), (2, 3, 1)])
    assert [len(it.cluster.brokers[broker].led_partitions()) for broker in (1, 2, 3)] == [1, 1, 0]
    it.topic("u", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
    assert [len(it.cluster.brokers[broker].led_partitions()) for broker in (1, 2, 3)] == [2, 2, 1]


@pytest.mark.parametrize(("min_isr", "written"), [(1, 5), (2, 0), (3, 0)])
def test_statement_34_two_of_three_brokers_may_fail_but_not_for_writers_that_want_two(
    it: Any, min_isr: int, written: int
) -> None:
    (key,) = it.topic("t", [(1, 2, 3)], min_isr=min_isr)
    it.write(key, 10)
    for broker in (1, 2):
        it.run(it.cluster.now + 10_000)
        it.cluster.kill(broker)
    it.run(it.cluster.now + 20_000)
    assert it.state(key).leader == 3
    it.write(key, 5)
    it.run(it.cluster.now + 1_000)
    assert it.high_watermark(3, key) == 10 + written


@pytest.mark.parametrize(("min_isr", "kept"), [(1, 10), (2, 20)])
def test_statement_09_one_failure_less_than_replicas_is_survived_but_data_only_below_the_minimum(
    lab: Any, min_isr: int, kept: int
) -> None:
    """With a minimum of 1 the last replica standing acknowledges alone; what it acknowledged is lost with its disk."""
    it = lab(brokers=(1, 2), eligible_leader_replicas=False)
    (key,) = it.topic("t", [(1, 2)], min_isr=min_isr)
    it.write(key, 10)
    it.run(5_000)
    if min_isr == 1:
        it.cluster.kill(2)
        it.run(20_000)
    it.write(key, 10)
    it.run(21_000)
    assert it.high_watermark(1, key) == 20
    it.cluster.wipe(1)
    it.run(40_000)
    assert it.log_end(2, key) == kept


def test_statement_17_a_follower_in_sync_takes_over_and_keeps_what_was_committed(it: Any) -> None:
    (key,) = it.topic("t", [(1, 2, 3)])
    it.write(key, 10)
    it.run(5_000)
    it.hold(1, 2)
    it.write(key, 10)
    it.run(49_000)
    assert it.state(key).isr == (1, 3)
    assert it.high_watermark(1, key) == 20
    it.cluster.kill(1)
    it.run(62_000)
    assert (it.state(key).leader, it.log_end(3, key)) == (3, 20)


def test_statement_33_a_failure_moves_leaders_and_in_sync_replicas_but_no_replica(lab: Any) -> None:
    it = lab(brokers=(1, 2, 3, 4))
    keys = it.topic("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
    before = [it.state(key).replicas for key in keys]
    it.cluster.kill(1)
    it.run(100_000)
    assert before == [it.state(key).replicas for key in keys]
    assert [it.state(key).leader for key in keys] == [2, 2, 3]
    assert not it.cluster.disks[4].replicas
    it.cluster.admin.alter_partition_reassignments({keys[0]: (4, 2, 3)})
    it.run(101_000)
    assert it.state(keys[0]).replicas == (4, 2, 3)
    assert it.causes(keys[0])[-1] == Cause.REASSIGNMENT


@pytest.mark.parametrize(("partition", "heir"), [(0, 2), (1, 3)])
def test_statement_39_the_next_in_replica_order_leads_not_the_broker_that_led_nothing(
    it: Any, partition: int, heir: int
) -> None:
    key = it.topic("t", [(1, 2, 3), (2, 3, 1)])[partition]
    it.run(10_000)
    it.cluster.kill(it.state(key).leader)
    it.run(25_000)
    assert it.state(key).leader == heir


def test_statement_30_a_replica_is_on_one_disk_and_offline_with_it(lab: Any) -> None:
    it = lab(log_dirs=2)
    keys = it.topic("t", [(1, 2, 3)] * 4)
    log_dirs = it.cluster.disks[1].log_dirs
    assert [log_dirs.placed[key] for key in keys] == ["dir-1", "dir-2"] * 2
    it.cluster.fail_log_dir(1, "dir-2")
    it.run(5_000)
    assert [log_dirs.is_offline(key) for key in keys] == [False, True] * 2
    assert [it.state(key).isr for key in keys] == [(1, 2, 3), (2, 3)] * 2
    assert it.causes(keys[1]) == [Cause.DIR_FAILURE]
    assert 1 in it.cluster.brokers
