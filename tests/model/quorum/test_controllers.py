"""The controllers of a cluster: what may be seen, what is undone, what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
from streaming.contracts.records import BrokerRegistrationChange
from streaming.model.constants import Error, RefusedRequest
from streaming.model.controller.registry import Registry
from streaming.model.controller.topics import NewTopic
from streaming.model.messages.registrations import BrokerRegistration, PartitionRegistration, TopicRegistration

KEY = TopicPartition(TopicId("t"), 0)
TOPIC = TopicRegistration(topic="t", topic_id=TopicId("t"), partitions=1)


def test_statement_20_no_batch_is_seen_and_no_broker_told_before_a_majority_has_it(lab: Any) -> None:
    it = lab(controllers=3)
    for follower in (-101, -102):
        it.hold(follower, -100)
    told = len(it.commits)
    it.cluster.admin.create_topic(NewTopic("t", KEY.topic_id, ((1, 2, 3),)), {})
    it.run(it.cluster.now + 400)
    assert KEY in it.cluster.controller.registry.partitions
    assert (len(it.commits), KEY in it.cluster.disks[BrokerId(1)].replicas) == (told, False)
    for follower in (-101, -102):
        it.release(follower, -100)
    it.run(it.cluster.now + 10)
    steps = [step.topic_partition for commit in it.commits[told:] for step in commit.transitions]
    assert (steps, KEY in it.cluster.disks[BrokerId(1)].replicas) == ([KEY], True)


def test_a_registry_goes_back_with_its_indexes() -> None:
    registry = Registry()
    registry.journal.is_kept = True
    one = PartitionRegistration((1, 2), (1, 2), 1)
    registry.brokers[BrokerId(1)] = BrokerRegistration(5, "a")
    registry.replace(TOPIC, KEY, one, Cause.CREATED)
    registry.journal.mark(10)
    registry.replace(TOPIC, KEY, one._replace(leader=-1, isr=(2,)), Cause.FENCED)
    registry.brokers[BrokerId(1)] = BrokerRegistration(9, "b")
    registry.journal.mark(20)
    registry.replace(TOPIC, KEY, None, Cause.DELETED)
    registry.journal.mark(30)
    registry.journal.forget(10)
    registry.revert(10)
    assert registry.partitions == {KEY: one}
    assert registry.brokers == {1: BrokerRegistration(5, "a")}
    assert (registry.with_isr_member(1), registry.led_by(1), list(registry.leaderless)) == ([KEY], [KEY], [])
    registry.revert(10)  # what is committed stays
    assert registry.partitions == {KEY: one}


def test_operations_within_the_linger_share_a_batch_with_the_time_it_was_opened(lab: Any) -> None:
    it = lab(controller_quorum_append_linger_ms=25)
    it.run(1_100)
    for name in ("a", "b"):
        it.cluster.admin.create_topic(NewTopic(name, TopicId(name), ((1, 2, 3),)), {})
        it.run(it.cluster.now + 10)
    assert it.batches_since(1_100) == []
    it.run(1_200)
    (commit,) = [each for each in it.commits if each.now >= 1_100]
    assert (commit.now, len(commit.batch.records), len(commit.transitions)) == (1_100, 4, 2)


def test_an_administrator_is_refused_while_nobody_is_active(lab: Any) -> None:
    it = lab(controllers=3)
    it.cluster.kill(-100)
    with pytest.raises(RefusedRequest) as refused:
        it.cluster.admin.create_topic(NewTopic("t", KEY.topic_id, ((1, 2, 3),)), {})
    assert refused.value.error is Error.NOT_CONTROLLER


def test_a_single_controller_that_restarts_leads_a_new_epoch_and_nobody_is_fenced(it: Any) -> None:
    (key,) = it.topic("t", [(1, 2, 3)])
    it.run(2_000)
    it.cluster.kill(-100)
    it.run(6_000)
    it.start(-100)
    it.run(30_000)
    assert [type(record).__name__ for batch in it.batches_since(2_000) for record in batch] == [
        "LeaderChange",
        "RegisterController",
    ]
    assert (it.state(key).isr, it.cluster.controllers.describe(it.cluster.now).epoch) == ((1, 2, 3), 2)


def test_the_only_controller_fences_one_broker_after_a_stall_and_takes_it_back_at_once(lab: Any) -> None:
    """As recorded of 4.3.1 (tests/fixtures/metadata_log/stalls_and_two_processes.log.gz)."""
    it = lab()
    it.topic("t", [(1, 2, 3)])
    it.run(2_000)
    it.cluster.pause(-100)
    it.run(14_000)
    it.cluster.resume(-100)
    it.run(14_700)
    changes = [
        (record.broker, record.fenced)
        for batch in it.batches_since(2_000)
        for record in batch
        if isinstance(record, BrokerRegistrationChange)
    ]
    assert [fenced for _, fenced in changes] == [1, -1]
    assert len({broker for broker, _ in changes}) == 1
    it.run(30_000)
    assert all(not broker.fenced for broker in it.cluster.controller.registry.brokers.values())


def test_a_broker_whose_registration_was_answered_to_nobody_keeps_its_epoch(lab: Any) -> None:
    it = lab(controllers=3)
    it.hold(-100, 4)
    it.start(4)
    it.run(it.cluster.now + 20)
    epoch = it.cluster.controller.registry.brokers[4].epoch
    it.cluster.kill(-100)
    it.run(20_000)
    assert (it.cluster.brokers[4].lifecycle.epoch, it.cluster.controller.registry.brokers[4].fenced) == (epoch, False)


def test_the_active_controller_tells_of_voters_and_observers(lab: Any) -> None:
    it = lab(controllers=3)
    it.cluster.kill(-102)
    it.run(10_000)
    told = it.cluster.controllers.describe(10_000)
    assert (told.leader, told.epoch) == (100, 1)
    assert [one.node for one in told.members] == [100, 101, 102, 1, 2, 3]
    assert [one.is_voter for one in told.members] == [True] * 3 + [False] * 3
    ends = [one.log_end_offset for one in told.members[:3]]
    assert ends[0] == ends[1] == told.high_watermark > ends[2]
    assert [10_000 - one.last_caught_up_ms > 5_000 for one in told.members[:3]] == [False, False, True]
    it.cluster.kill(-101)
    it.run(20_000)
    assert it.cluster.controllers.describe(20_000) is None


def test_three_idle_controllers_send_eight_messages_a_second(lab: Any) -> None:
    it = lab(controllers=3)
    it.run(2_000)
    sent = []
    arrival = it.network.arrival

    def counted(now: int, sender: BrokerId, receiver: BrokerId, records: int) -> int | None:
        sent.append((sender, receiver))
        return arrival(now, sender, receiver, records)

    it.network.arrival = counted
    it.run(12_000)
    among = [link for link in sent if link[0] < 0 and link[1] < 0]
    assert len(among) == 80


def test_a_log_keeps_only_what_some_voter_lacks(lab: Any) -> None:
    it = lab(controllers=3)
    it.run(60_000)
    assert [len(process.raft.log.entries) <= 2 for process in it.cluster.controllers.running.values()] == [True] * 3
    it.cluster.kill(-102)
    it.run(120_000)
    assert len(it.cluster.controllers.running[-100].raft.log.entries) > 100
