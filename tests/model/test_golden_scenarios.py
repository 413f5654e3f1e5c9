"""Scenarios whose outcome is known, by the numbers G1 to G25 of the list they come from (see docstrings).

Times in ms. Window 30 s, checks at multiples of 15 s, session 9 s, heartbeats each 2 s, session checks each 1.125 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming.contracts.events import Cause
from streaming.contracts.health import is_at_min_isr, is_under_replicated
from streaming.contracts.records import BrokerRegistrationChange, PartitionChange, RegisterBroker
from streaming.model.messages.outbox import CONTROLLER

if TYPE_CHECKING:
    from collections.abc import Callable


def test_two_partitions_on_three_brokers_leave_one_broker_without_leadership(lab: Callable[..., Any]) -> None:
    """G1."""
    it = lab()
    first, second = it.topic("t", [(1, 2, 3), (2, 3, 1)])
    it.run(10_000)
    assert [it.state(first).leader, it.state(second).leader] == [1, 2]
    assert not it.cluster.controller.registry.leads_something(3)
    assert not any(is_under_replicated((1, 2, 3), it.state(key).isr, ()) for key in (first, second))
    assert not it.cluster.brokers[3].led_partitions()


def test_three_partitions_have_three_leaders(lab: Callable[..., Any]) -> None:
    """G2."""
    it = lab()
    keys = it.topic("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
    assert [it.state(key).leader for key in keys] == [1, 2, 3]


@pytest.mark.parametrize("elr", [False, True])
def test_with_min_isr_one_writes_survive_two_of_three_brokers(lab: Callable[..., Any], elr: bool) -> None:  # noqa: FBT001
    """G3: leaders move along the replica order among the ISR."""
    it = lab(eligible_leader_replicas=elr)
    first, second = it.topic("t", [(1, 2, 3), (2, 3, 1)], min_isr=1)
    it.keep_writing(first, 1, 100)
    it.run(10_000)
    it.cluster.kill(1)
    it.run(25_000)
    assert (it.state(first).leader, it.state(second).leader) == (2, 2)
    it.cluster.kill(2)
    it.run(40_000)
    for key in (first, second):
        assert (it.state(key).leader, it.state(key).isr) == (3, (3,))
        assert is_at_min_isr(1, it.state(key).isr)
    written = it.high_watermark(3, first)
    it.run(41_000)
    assert written + 10 == it.high_watermark(3, first)


def test_below_min_isr_writes_are_refused_and_the_high_watermark_is_frozen(lab: Callable[..., Any]) -> None:
    """G4: with min ISR 2, the second loss stops acks=all; acks=1 is appended but invisible."""
    it = lab()
    (key,) = it.topic("t", [(1, 2, 3)], min_isr=2)
    it.write(key, 10)
    it.run(10_000)
    it.cluster.kill(1)
    it.run(25_000)
    it.cluster.kill(2)
    it.run(40_000)
    assert (it.state(key).leader, it.state(key).isr, it.state(key).elr) == (3, (3,), (2,))
    it.write(key, 5)
    it.run(41_000)
    assert (it.cluster.refused, it.log_end(3, key)) == (5, 10)
    it.write(key, 7, acks_all=False)
    it.run(42_000)
    assert (it.log_end(3, key), it.high_watermark(3, key)) == (17, 10)


def test_a_hung_follower_leaves_at_the_first_check_after_its_window(lab: Callable[..., Any]) -> None:
    """G5: caught up at 3.0, checks at 15 and 30 (27 s) keep it, the one at 45 removes it; the high watermark jumps."""
    it = lab()
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 1, 100)
    it.run(3_000)
    it.hold(1, 3)
    it.run(44_999)
    assert it.steps(key) == []
    stuck = it.high_watermark(1, key)
    it.run(45_100)
    ((at, step),) = it.steps(key)
    assert 45_000 <= at <= 45_005
    assert (step.cause, step.after.isr) == (Cause.LAG, (1, 2))
    assert step.before.leader_epoch == step.after.leader_epoch
    assert it.shrinks() == 1
    assert it.high_watermark(1, key) > stuck + 400


def test_a_dead_follower_is_fenced_and_no_broker_counts_a_shrink(lab: Callable[..., Any]) -> None:
    """G7: fenced 9 to 10.125 s after its last heartbeat."""
    it = lab()
    (key,) = it.topic("t", [(1, 2, 3)])
    it.run(10_000)
    it.cluster.kill(3)
    it.run(30_000)
    ((at, step),) = it.steps(key)
    assert 8_500 + 9_000 <= at <= 10_000 + 10_125
    assert (step.cause, step.after.isr) == (Cause.FENCED, (1, 2))
    assert it.shrinks() == 0
    ((change, registration),) = it.batches_since(10_000)
    assert PartitionChange(topic_id=key.topic_id, partition=0, isr=(1, 2)) == change
    assert (registration.broker, registration.fenced) == (3, 1)


def test_a_dead_leader_is_replaced_by_the_first_live_member_in_replica_order(lab: Callable[..., Any]) -> None:
    """G8: leader epoch and partition epoch grow by one."""
    it = lab()
    (key,) = it.topic("t", [(2, 3, 1)])
    it.run(10_000)
    before = it.state(key)
    it.cluster.kill(2)
    it.run(30_000)
    after = it.state(key)
    assert (after.leader, after.isr) == (3, (3, 1))
    assert (before.leader_epoch + 1, before.partition_epoch + 1) == (after.leader_epoch, after.partition_epoch)


def test_a_returning_broker_registers_is_unfenced_and_joins_when_it_has_everything(lab: Callable[..., Any]) -> None:
    """G9: a new broker epoch; the ISR grows without a new leader epoch."""
    it = lab()
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 100, 100)
    it.run(10_000)
    it.cluster.kill(3)
    it.run(60_000)
    before = it.state(key)
    old_epoch = it.cluster.controller.registry.brokers[3].epoch
    it.start(3)
    it.run(70_000)
    after = it.state(key)
    register, unfence, expand = (batch[0] for batch in it.batches_since(60_000))
    assert isinstance(register, RegisterBroker)
    assert register.fenced
    assert register.broker_epoch > old_epoch
    assert BrokerRegistrationChange(broker=3, broker_epoch=register.broker_epoch, fenced=-1) == unfence
    assert PartitionChange(topic_id=key.topic_id, partition=0, isr=(1, 2, 3)) == expand
    assert (before.leader_epoch, before.partition_epoch + 1) == (after.leader_epoch, after.partition_epoch)
    assert it.causes(key)[-1] == Cause.EXPAND


def test_controlled_shutdown_moves_leaders_before_the_process_ends(lab: Callable[..., Any]) -> None:
    """G10: the registration change first, then the partitions; never leaderless."""
    it = lab()
    first, second = it.topic("t", [(1, 2, 3), (2, 3, 1)])
    it.keep_writing(first, 1, 10)
    it.run(10_000)
    it.cluster.stop(1)
    it.run(10_010)
    assert 1 in it.cluster.brokers
    assert it.state(first).leader == 2
    it.run(15_000)
    assert 1 not in it.cluster.brokers
    began, fenced = it.batches_since(10_000)
    assert (began[0].in_controlled_shutdown, began[0].fenced) == (1, 0)
    assert [(change.partition, change.isr, change.leader) for change in began[1:]] == [
        (0, (2, 3), 2),
        (1, (2, 3), None),
    ]
    assert [(record.broker, record.fenced) for record in fenced] == [(1, 1)]
    assert it.causes(second) == [Cause.CONTROLLED_SHUTDOWN]
    assert it.cluster.refused == 0


def test_a_clean_stop_of_a_broker_that_leads_nothing_looks_like_an_expired_session(lab: Callable[..., Any]) -> None:
    it = lab()
    (key,) = it.topic("t", [(1, 2, 3)])
    it.run(10_000)
    it.cluster.stop(3)
    it.run(12_000)
    ((change, fenced),) = it.batches_since(10_000)
    assert (change.isr, fenced.fenced) == ((1, 2), 1)
    assert it.causes(key) == [Cause.CONTROLLED_SHUTDOWN]
    it.run(25_000)
    ((again,),) = it.batches_since(12_000)
    assert (again.broker, again.fenced) == (3, 1)


def test_preferred_leaders_return_at_the_next_rebalance(lab: Callable[..., Any]) -> None:
    """G11."""
    it = lab(auto_leader_rebalance_enable=True)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.run(10_000)
    it.cluster.kill(1)
    it.run(30_000)
    it.start(1)
    it.run(299_999)
    assert (it.state(key).leader, it.state(key).isr) == (2, (1, 2, 3))
    it.run(300_100)
    assert (it.state(key).leader, it.causes(key)[-1]) == (1, Cause.PREFERRED_ELECTION)
    assert [(PartitionChange(topic_id=key.topic_id, partition=0, leader=1),)] == it.batches_since(300_000)


def test_a_follower_that_is_always_one_batch_behind_stays(lab: Callable[..., Any]) -> None:
    """G12: the second branch of the caught-up rule."""
    it = lab(latency_ms=25, replica_lag_time_max_ms=2_000)
    (key,) = it.topic("t", [(1, 2)])
    it.keep_writing(key, 1, 10)
    it.run(15_000)
    assert it.log_end(2, key) < it.log_end(1, key)
    assert it.steps(key) == []


def test_a_follower_slower_than_the_writers_leaves_within_one_and_a_half_windows(lab: Callable[..., Any]) -> None:
    """G13: it reads 90 % of what is written, so its last caught-up time stands still."""
    it = lab(replica_fetch_max_records=100)
    (key,) = it.topic("t", [(1, 2)])
    it.keep_writing(key, 100, 100)
    it.run(5_000)
    it.network.slow((1, 2), 900)
    it.run_until(lambda: bool(it.steps(key)))
    frozen = it.cluster.brokers[1].leadership.led[key].remotes[2].last_caught_up_ms
    ((at, step),) = it.steps(key)
    assert step.cause == Cause.LAG
    assert 30_000 < at - frozen <= 45_005


def test_a_proposal_with_a_broker_fenced_meanwhile_is_refused_and_taken_back(lab: Callable[..., Any]) -> None:
    """G25: the leader does not know yet that 3 is fenced; the controller does."""
    it = lab(replica_lag_time_max_ms=4_000)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 1, 50)
    it.hold(1, 3)
    it.run(10_000)
    assert it.state(key).isr == (1, 2)
    it.cluster.pause(3)
    it.run(16_000)
    it.hold(CONTROLLER, 1)
    it.run(20_500)
    assert it.cluster.controller.registry.brokers[3].fenced
    it.hold(3, CONTROLLER)
    it.cluster.resume(3)
    it.release(1, 3)
    leader = it.cluster.brokers[1].leadership
    it.run_until(lambda: leader.led[key].pending is not None)
    assert leader.led[key].maximal_isr() == (1, 2, 3)
    it.run(it.cluster.now + 5)
    it.release(CONTROLLER, 1)
    it.run(it.cluster.now + 3)
    assert leader.led[key].maximal_isr() == (1, 2)
    assert leader.proposals.failed_isr_updates == 1
    it.release(3, CONTROLLER)
    it.run(30_000)
    assert it.state(key).isr == (1, 2, 3)
