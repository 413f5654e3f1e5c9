"""How a leader changed its ISR before 2.7: it wrote the partition's state into ZooKeeper itself, and told later.

Departs from Kafka: the leader's thread does not stand still while ZooKeeper writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.errors import Error
from streaming.model.messages.alter_partition import AlteredPartition, AlterPartitionItem, AlterPartitionResponse
from streaming.model.messages.timers import IsrChangesDue
from streaming.model.messages.zookeeper import Code, Create, Result, SetData
from streaming.model.zookeeper.layout import ISR_CHANGES, StateData, registration_of, state_path

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.broker.leadership import Leadership
    from streaming.model.constants import Constants
    from streaming.model.messages.outbox import Outbox
    from streaming.model.zookeeper.session import Session


class IsrChanges:
    """The ISRs that one broker writes.

    Attributes:
        controller_epoch: the newest the broker has heard of; it is written with each state.
    """

    def __init__(self, leadership: Leadership, constants: Constants, session: Session, outbox: Outbox) -> None:
        self.controller_epoch = 0
        self._leadership = leadership
        self._constants = constants
        self._session = session
        self._outbox = outbox
        self._untold: dict[TopicPartition, None] = {}
        self._last_change_ms = 0
        self._last_notice_ms = 0

    def write(self, items: tuple[AlterPartitionItem, ...]) -> None:
        """Leader writes ISRs, each only if nobody wrote the state since it last heard of it."""
        if self._session.number is None:
            self._leadership.proposals.lost()
            return
        operations = tuple(
            SetData(state_path(item.topic_partition), self._state(item), item.partition_epoch) for item in items
        )
        self._session.ask(operations, lambda now, results: self._written(now, items, results))

    def _state(self, item: AlterPartitionItem) -> StateData:
        isr = tuple(broker for broker, _ in item.isr)
        return StateData(self._leadership.broker, item.leader_epoch, isr, self.controller_epoch, item.cause)

    def _written(self, now: int, items: tuple[AlterPartitionItem, ...], results: tuple[Result, ...]) -> None:
        altered = tuple(self._altered(item, result) for item, result in zip(items, results, strict=True))
        self._untold |= {item.topic_partition: None for item in altered if item.error is Error.NONE}
        self._last_change_ms = now
        self._leadership.proposals.answered(now, AlterPartitionResponse(Error.NONE, altered))

    def _altered(self, item: AlterPartitionItem, result: Result) -> AlteredPartition:
        """A state of another version is not ours to change: the controller's word is on its way."""
        key = item.topic_partition
        partition = self._leadership.led.get(key)
        if result.code is not Code.OK or result.znode is None or partition is None:
            return AlteredPartition(key, Error.OPERATION_NOT_ATTEMPTED)
        return AlteredPartition(key, Error.NONE, registration_of(partition.committed.replicas, result.znode))

    def notify(self, now: int, timer: IsrChangesDue) -> None:
        """Leader, each 2.5 s: tell the controller, once it was quiet for 5 s or a minute has passed (KAFKA-2722)."""
        constants = self._constants
        self._outbox.after(constants.isr_change_check_interval_ms, timer)
        is_quiet = now - self._last_change_ms > constants.isr_change_quiet_ms
        is_overdue = now - self._last_notice_ms > constants.isr_change_max_delay_ms
        if self._untold and self._session.number is not None and (is_quiet or is_overdue):
            notice = Create(ISR_CHANGES, tuple(self._untold), sequential=True)
            self._session.ask((notice,), lambda _now, _results: None)
            self._untold.clear()
            self._last_notice_ms = now
