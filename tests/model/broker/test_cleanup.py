"""Retention, compaction and DeleteRecords in a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.identifiers import BrokerId, TopicPartition
from streaming.model.constants import Error
from streaming.model.messages.clients import ALL_COMMITTED, DeleteRecordsRequest, DeleteRecordsResponse, Header
from streaming.model.messages.network import Outbox
from streaming.model.storage.batch import Batch

ADMINISTRATOR = BrokerId(-7)


class Administrator:
    """Keeps the answers it gets."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.has_ended = False
        self.answers: list[DeleteRecordsResponse] = []

    def receive(self, _now: int, payload: Any) -> None:
        self.answers.append(payload)

    def delete(self, it: Any, leader: int, key: TopicPartition, offset: int) -> tuple[Error, int]:
        request = DeleteRecordsRequest(Header(ADMINISTRATOR, len(self.answers)), key, offset)
        self.outbox.send(BrokerId(leader), request)
        it.cluster.flush(ADMINISTRATOR)
        it.run(it.cluster.now + 10)
        return self.answers[-1].error, self.answers[-1].low_watermark


def starts(it: Any, key: TopicPartition) -> list[int]:
    return [disk.replicas[key].log.start for disk in it.cluster.disks.values()]


def test_statement_29_a_log_is_segments_and_each_replica_deletes_its_own(lab: Any) -> None:
    it = lab(log_retention_check_interval_ms=1_000, log_initial_task_delay_ms=1_000)
    key = it.topic("t", [(1, 2, 3)], segment_bytes=10_240, retention_ms=20_000)[0]
    for second in range(1, 6):
        it.run(second * 1_000)
        it.write(key, 10)
    it.run(8_000)
    segments = {tuple(part.file_name for part in it.cluster.disks[n].replicas[key].log.segments) for n in (1, 2, 3)}
    assert segments == {tuple(f"{base:020d}.log" for base in (0, 10, 20, 30, 40))}
    it.hold(1, 3)
    it.run(24_000)
    assert starts(it, key) == [30, 30, 30]
    it.run(40_000)
    assert starts(it, key) == [50, 50, 50]
    it.write(key, 1)
    assert it.log_end(1, key) == 51


def test_retention_waits_for_the_high_watermark(lab: Any) -> None:
    it = lab(log_retention_check_interval_ms=1_000, log_initial_task_delay_ms=1_000, replica_lag_time_max_ms=100_000)
    key = it.topic("t", [(1, 2)], segment_bytes=10_240, retention_ms=2_000)[0]
    it.run(1_000)
    it.hold(1, 2)
    for _ in range(3):
        it.write(key, 10)
    it.run(9_000)
    assert it.cluster.disks[1].replicas[key].log.start == 0
    it.release(1, 2)
    it.run(12_000)
    assert it.cluster.disks[1].replicas[key].log.start == 30


def test_a_follower_that_is_behind_the_log_start_begins_anew_there(lab: Any) -> None:
    it = lab(log_retention_check_interval_ms=1_000, log_initial_task_delay_ms=1_000)
    key = it.topic("t", [(1, 2)], segment_bytes=10_240, retention_ms=5_000)[0]
    it.write(key, 10)
    it.run(2_000)
    it.cluster.kill(2)
    it.run(13_000)
    it.write(key, 10)
    it.run(20_000)
    it.write(key, 5)
    assert it.cluster.disks[1].replicas[key].log.start == 20
    it.start(2)
    it.run(24_000)
    log = it.cluster.disks[2].replicas[key].log
    assert (log.start, log.end, set(it.state(key).isr)) == (20, 25, {1, 2})


@pytest.fixture
def administrator() -> Administrator:
    return Administrator()


def test_records_are_deleted_up_to_the_high_watermark_on_every_replica(it: Any, administrator: Administrator) -> None:
    key = it.topic("t", [(1, 2, 3)])[0]
    it.cluster.connect(ADMINISTRATOR, administrator)
    it.write(key, 10)
    it.run(2_000)
    assert administrator.delete(it, 1, key, 4) == (Error.NONE, 4)
    assert administrator.delete(it, 1, key, 2) == (Error.NONE, 4)
    assert administrator.delete(it, 1, key, 11) == (Error.OFFSET_OUT_OF_RANGE, -1)
    assert administrator.delete(it, 2, key, 5) == (Error.NOT_LEADER_OR_FOLLOWER, -1)
    it.run(3_000)
    assert starts(it, key) == [4, 4, 4]
    assert administrator.delete(it, 1, key, ALL_COMMITTED) == (Error.NONE, 10)
    it.run(4_000)
    assert starts(it, key) == [10, 10, 10]


def test_records_of_a_compacted_topic_are_not_deleted(it: Any, administrator: Administrator) -> None:
    key = it.topic("t", [(1, 2, 3)], cleanup_policy="compact")[0]
    it.cluster.connect(ADMINISTRATOR, administrator)
    assert administrator.delete(it, 1, key, ALL_COMMITTED) == (Error.POLICY_VIOLATION, -1)


def test_statement_36_compaction_leaves_gaps_on_every_replica_and_changes_no_offset(lab: Any) -> None:
    it = lab(log_retention_check_interval_ms=1_000, log_initial_task_delay_ms=1_000)
    key = it.topic("t", [(1, 2)], segment_bytes=2_048, cleanup_policy="compact")[0]
    leadership = it.cluster.brokers[1].leadership
    for value in range(4):
        batch = Batch(0, 2, keys=("a", "b"), values=(str(value), "same"), timestamp_ms=it.cluster.now)
        leadership.append_batch(it.cluster.now, leadership.led[key], batch, acks_all=True)
        it.cluster.flush(1)
    it.run(4_000)
    it.cluster.wipe(2)
    it.run(12_000)
    it.start(2)
    it.run(16_000)
    for broker in (1, 2):
        log = it.cluster.disks[broker].replicas[key].log
        assert [offset for batch in log.batches for offset in batch.offsets] == [4, 5, 6, 7]
        assert (log.start, log.end) == (0, 8)


def test_a_changed_configuration_reaches_logs_that_exist(lab: Any) -> None:
    it = lab(log_retention_check_interval_ms=1_000, log_initial_task_delay_ms=1_000)
    key = it.topic("t", [(1, 2, 3)])[0]
    it.write(key, 10)
    it.run(5_000)
    it.cluster.admin.alter_config("retention.ms", "1000", "t")
    it.run(7_000)
    assert starts(it, key) == [10, 10, 10]


def test_looking_after_idle_logs_costs_nothing(lab: Any) -> None:
    it = lab(log_retention_check_interval_ms=1_000, log_initial_task_delay_ms=1_000)
    it.topic("t", [(1, 2, 3)] * 50)
    for broker in it.cluster.brokers.values():
        assert broker.cleanup._due(it.cluster.now + 604_000_000) == []
        assert len(broker.cleanup._due(it.cluster.now + 604_900_000)) == 50
