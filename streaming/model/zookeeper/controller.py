"""The controller of a cluster on ZooKeeper: one of the brokers (``KafkaController``, ``ControllerEventManager``).

Every broker has one of these and each tries to create the ephemeral node ``/controller``; whose succeeds is active
until its session ends. Events are taken one at a time. An event is a generator: it yields operations for ZooKeeper and
goes on with the results, so it reads as the blocking code that it is in Kafka.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from streaming.model.errors import Error
from streaming.model.messages.alter_partition import AlterPartitionResponse
from streaming.model.messages.control import ControlledShutdownRequest, ControlledShutdownResponse
from streaming.model.messages.timers import RebalanceDue
from streaming.model.messages.zookeeper import Code, Create, GetData, Path, Result, SetData, Watch
from streaming.model.zookeeper.controller_epoch import ControllerEpoch
from streaming.model.zookeeper.layout import (
    BROKER_IDS,
    CONTROLLER_EPOCH,
    CONTROLLER_PATH,
    DELETED_TOPICS,
    ISR_CHANGES,
    TOPICS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.constants import Constants
    from streaming.model.controller.registry import Registry
    from streaming.model.messages.alter_partition import AlterPartitionRequest
    from streaming.model.messages.outbox import Outbox
    from streaming.model.zookeeper.leader_and_isr import Steps
    from streaming.model.zookeeper.session import Session

# KafkaController looks for imbalance soon after it was elected, then periodically.
_FIRST_REBALANCE_MS: Final = 5_000

_EVENTS: Final[dict[Path, Callable[[ControllerEpoch], Steps]]] = {
    BROKER_IDS: ControllerEpoch.brokers_changed,
    TOPICS: ControllerEpoch.topics_changed,
    DELETED_TOPICS: ControllerEpoch.topics_deleted,
    ISR_CHANGES: ControllerEpoch.isrs_changed,
}


class KafkaController:
    """One broker's controller: asleep until it is elected.

    Attributes:
        active: the broker that is the controller, as far as this one knows; None while nobody is.

    Args:
        broker: whose it is.
        constants: timing and switches.
        session: with ZooKeeper.
        outbox: where messages to the brokers go.
        elected: told whenever ``active`` changes.
    """

    def __init__(
        self, broker: BrokerId, constants: Constants, session: Session, outbox: Outbox, elected: Callable[[], None]
    ) -> None:
        self.active: BrokerId | None = None
        self._broker = broker
        self._constants = constants
        self._session = session
        self._outbox = outbox
        self._elected = elected
        self._controller_epoch: ControllerEpoch | None = None
        self._events: deque[Steps] = deque()
        self._running: Steps | None = None

    @property
    def remembered(self) -> Registry | None:
        """What it remembers of brokers and partitions; None while it is not active."""
        return None if self._controller_epoch is None else self._controller_epoch.registry

    # -------------------------------------------------------------- what happens to it

    def compete(self) -> None:
        """The broker has registered in a new session."""
        self._session.ask((Watch(CONTROLLER_PATH),), lambda _now, _results: self._enqueue(self._elect()))

    def resign(self) -> None:
        """The session ended, or a later controller wrote to ZooKeeper: nothing that was begun goes on."""
        self._events.clear()
        self._running = self._controller_epoch = None
        self._know(None)

    def changed(self, path: Path) -> None:
        """A watch fired."""
        if path == CONTROLLER_PATH:
            self._enqueue(self._elect())
        elif self._controller_epoch is not None:
            self._enqueue(_EVENTS[path](self._controller_epoch))

    def alter_partition(self, request: AlterPartitionRequest) -> None:
        """A leader asks for other ISRs."""
        if self._controller_epoch is None:
            self._outbox.send(request.broker, AlterPartitionResponse(Error.NOT_CONTROLLER))
        else:
            self._enqueue(self._controller_epoch.alter_partition(request))

    def controlled_shutdown(self, request: ControlledShutdownRequest) -> None:
        """A broker wants to leave."""
        if self._controller_epoch is None:
            self._outbox.send(request.broker, ControlledShutdownResponse(None))
        else:
            self._enqueue(self._controller_epoch.controlled_shutdown(request))

    def rebalance(self, timer: RebalanceDue) -> None:
        """It is time to look for imbalance. The timer ends with the controller epoch."""
        if self._controller_epoch is not None and timer.controller_epoch == self._controller_epoch.epoch:
            self._outbox.after(self._constants.leader_imbalance_check_interval_ms, timer)
            self._enqueue(self._controller_epoch.rebalance())

    # -------------------------------------------------------------- one event at a time

    def _enqueue(self, event: Steps) -> None:
        self._events.append(event)
        if self._running is None:
            self._go_on(None)

    def _go_on(self, results: tuple[Result, ...] | None) -> None:
        """Take steps until one has to wait for ZooKeeper."""
        while self._running is not None or self._events:
            if self._running is None:
                self._running, results = self._events.popleft(), None
            try:
                operations = next(self._running) if results is None else self._running.send(results)
            except StopIteration:
                self._running = None
                continue
            if operations:
                version = None if self._controller_epoch is None else self._controller_epoch.epoch_version
                self._session.ask(operations, self._answered, version)
                return
            results = ()

    def _answered(self, _now: int, results: tuple[Result, ...]) -> None:
        if results:
            self._go_on(results)
        else:
            self.resign()  # fenced

    # -------------------------------------------------------------- election

    def _elect(self) -> Steps:
        """Broker competes for ``/controller``; the winner counts the epoch up, which fences every earlier one."""
        (response,) = yield (GetData(CONTROLLER_PATH),)
        if response.znode is not None:
            self._know(response.znode.data)
            return
        (created,) = yield (Create(CONTROLLER_PATH, self._broker, ephemeral=True),)
        if created.code is not Code.OK:
            return  # somebody was quicker; the watch tells who
        (epoch,) = yield (GetData(CONTROLLER_EPOCH),)
        assert epoch.znode is not None, "ZooKeeper has no /controller_epoch"  # noqa: S101 - it is never deleted
        (moved,) = yield (SetData(CONTROLLER_EPOCH, epoch.znode.data + 1, epoch.znode.version),)
        if moved.code is Code.OK and moved.znode is not None:
            self._controller_epoch = ControllerEpoch(
                moved.znode.data, moved.znode.version, self._constants, self._outbox
            )
            self._know(self._broker)
            if self._constants.auto_leader_rebalance_enable:
                self._outbox.after(_FIRST_REBALANCE_MS, RebalanceDue(self._controller_epoch.epoch))
            yield from self._controller_epoch.fail_over()

    def _know(self, active: BrokerId | None) -> None:
        if active != self.active:
            self.active = active
            self._elected()
