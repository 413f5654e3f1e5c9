"""A broker looks after its logs: retention, compaction, DeleteRecords (``LogManager``, ``LogCleaner``).

Leaders and followers each clean their own logs; a follower also takes over its leader's log start.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import TopicPartition
from streaming.model.constants import Error
from streaming.model.messages.clients import ALL_COMMITTED, DeleteRecordsRequest, DeleteRecordsResponse
from streaming.model.messages.timers import CheckpointDue, CleanupDue
from streaming.model.storage.retention import compact, first_retained, next_visit
from streaming.model.storage.segments import config_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.model.broker.leadership import Leadership
    from streaming.model.constants import Constants
    from streaming.model.messages.network import Outbox
    from streaming.model.messages.registrations import TopicRegistration
    from streaming.model.storage.disk import Disk
    from streaming.model.storage.replica import LocalReplica

NEVER: Final = -1


class LogCleanup:
    """Periodic work on the disk of one broker: checkpoints and clean-up.

    A log is visited when something in it may be due, and not before. Departs from Kafka: compaction keeps the period
    of the retention check, where Kafka's cleaner looks each 15 s.
    """

    def __init__(self, disk: Disk, leadership: Leadership, constants: Constants, outbox: Outbox) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            CheckpointDue: self._checkpoint,
            CleanupDue: self._clean_up,
            DeleteRecordsRequest: self._delete_records,
        }
        self._disk = disk
        self._leadership = leadership
        self._constants = constants
        self._default = config_of(constants)
        self._outbox = outbox
        self._visit_at: dict[TopicPartition, int] = {}
        self._visits: list[tuple[int, TopicPartition]] = []

    def start(self) -> None:
        """Process has started."""
        self._outbox.after(self._constants.replica_high_watermark_checkpoint_interval_ms, CheckpointDue())
        self._outbox.after(self._constants.log_initial_task_delay_ms, CleanupDue())

    def configure(self, now: int, key: TopicPartition, replica: LocalReplica, topic: TopicRegistration) -> None:
        """Broker learns that it hosts a replica, and how its topic is configured."""
        config = topic.log or self._default
        if replica.log.config is not config or key not in self._visit_at:
            replica.log.config = config
            self._plan(now, key, replica)

    def _plan(self, now: int, key: TopicPartition, replica: LocalReplica) -> None:
        at = next_visit(replica.log, now)
        self._visit_at[key] = NEVER if at is None else at
        if at is not None:
            heapq.heappush(self._visits, (at, key))

    def _checkpoint(self, _now: int, timer: CheckpointDue) -> None:
        self._outbox.after(self._constants.replica_high_watermark_checkpoint_interval_ms, timer)
        self._disk.checkpoint.write()

    def _clean_up(self, now: int, timer: CleanupDue) -> None:
        """Broker, each ``log.retention.check.interval.ms``: delete and compact."""
        self._outbox.after(self._constants.log_retention_check_interval_ms, timer)
        for key in self._due(now):
            replica = self._disk.replicas.get(key)
            if replica is not None:
                self._clean(now, key, replica)
                self._plan(now, key, replica)

    def _due(self, now: int) -> list[TopicPartition]:
        due = []
        while self._visits and self._visits[0][0] <= now:
            at, key = heapq.heappop(self._visits)
            if self._visit_at.get(key) == at:
                del self._visit_at[key]
                due.append(key)
        return due

    def _clean(self, now: int, key: TopicPartition, replica: LocalReplica) -> None:
        log = replica.log
        start = first_retained(log, replica.high_watermark, now)
        if start > log.start:
            if start == log.end > log.segments[-1].base_offset:
                log.roll()
            self._start_at(key, replica, start)
        if log.config.compacts:
            compact(log, log.producers.last_stable_offset(replica.high_watermark), now)

    def _start_at(self, key: TopicPartition, replica: LocalReplica, offset: int) -> None:
        replica.log.start_at(offset)
        if key in self._leadership.led:
            self._leadership.log_start_moved(key)

    def _delete_records(self, _now: int, request: DeleteRecordsRequest) -> None:
        """Administrator asks the leader. Departs from Kafka: answered before the followers have done the same."""
        error, low_watermark = self._delete_below(request.topic_partition, request.offset)
        response = DeleteRecordsResponse(request.header.correlation_id, error, low_watermark)
        self._outbox.send(request.header.sender, response)

    def _delete_below(self, key: TopicPartition, offset: int) -> tuple[Error, int]:
        partition = self._leadership.led.get(key)
        if partition is None:
            return Error.NOT_LEADER_OR_FOLLOWER, -1
        replica = partition.replica
        new_start = replica.high_watermark if offset == ALL_COMMITTED else offset
        if not replica.log.config.deletes:
            return Error.POLICY_VIOLATION, -1
        if new_start > replica.high_watermark:
            return Error.OFFSET_OUT_OF_RANGE, -1
        if new_start > replica.log.start:
            self._start_at(key, replica, new_start)
        return Error.NONE, replica.log.start
