"""A broker of a cluster on ZooKeeper: the same leader and follower, but sessions, pushes, and maybe the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import BrokerEpoch
from streaming.model.constants import Error
from streaming.model.messages.membership import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
)
from streaming.model.messages.replication import (
    AlteredPartition,
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from streaming.model.messages.timers import (
    ControlledShutdownDue,
    IsrChangesDue,
    IsrExpiration,
    PingDue,
    RebalanceDue,
    RegistrationDue,
    StartUp,
)
from streaming.model.messages.zookeeper import Answer, Changed, Code, Connected, Create, Result, SessionExpired, SetData
from streaming.model.nodes.broker import Broker
from streaming.model.nodes.zookeeper.controller import KafkaController
from streaming.model.nodes.zookeeper.layout import ISR_CHANGES, StateData, broker_path, registration_of, state_path
from streaming.model.nodes.zookeeper.session import Session

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.consumer_reads import Directory
    from streaming.model.broker.leadership import Leadership
    from streaming.model.constants import Constants
    from streaming.model.messages.membership import MetadataPartition
    from streaming.model.messages.network import Disconnected, Outbox
    from streaming.model.storage.disk import Disk

_CONTROLLED_SHUTDOWN_ATTEMPTS: Final = 3
_CONTROLLED_SHUTDOWN_RETRY_MS: Final = 5_000


class ZooKeeperBroker(Broker):
    """A broker process with a session."""

    def __init__(
        self, broker: BrokerId, incarnation_id: str, constants: Constants, disk: Disk, directory: Directory
    ) -> None:
        super().__init__(broker, incarnation_id, constants, disk, directory)
        self._session = Session(broker, constants.broker_session_timeout_ms, self.outbox)
        self.controller = KafkaController(broker, constants, self._session, self.outbox, self._controller_moved)
        self._isr_changes = IsrChanges(self.leadership, constants, self._session, self.outbox)
        self._leader_epochs: dict[TopicPartition, int] = {}
        self._controller_epoch = 0
        self._shutdown_attempts = 0
        self.leadership.proposals.ask = (
            self._ask_controller if constants.switches.isr_changes_through_controller else self._isr_changes.write
        )
        self._handlers |= {
            RegistrationDue: self._register,
            Connected: self._connected,
            SessionExpired: self._session_expired,
            PingDue: lambda _, message: self._session.ping(message),
            Answer: self._session.answered,
            Changed: self._changed,
            LeaderAndIsr: self._leader_and_isr,
            UpdateMetadata: self._update_metadata,
            StopReplica: self._stop_replica,
            AlterPartitionRequest: lambda _, request: self.controller.alter_partition(request),
            ControlledShutdownRequest: lambda _, request: self.controller.controlled_shutdown(request),
            ControlledShutdownResponse: self._may_stop,
            ControlledShutdownDue: lambda now, _: self.shut_down(now),
            RebalanceDue: lambda _, message: self.controller.rebalance(message),
            IsrChangesDue: self._isr_changes.notify,
        }

    def _started(self, now: int, _timer: StartUp) -> None:
        """Ask for a session; look for lagging followers, and tell of ISRs, from now on."""
        self.outbox.after(self._constants.isr_expiration_ms, IsrExpiration())
        if not self._constants.switches.isr_changes_through_controller:
            self._isr_changes.notify(now, IsrChangesDue())
        self._session.connect()

    # -------------------------------------------------------------- session

    def _connected(self, now: int, message: Connected) -> None:
        self._session.connected(message.session)
        self._register(now, RegistrationDue())

    def _register(self, _now: int, _timer: RegistrationDue) -> None:
        """Broker creates its node, bound to the session. Enabled within one.

        Departs from Kafka: a process that finds the node of the one before it waits for its end, where Kafka's exits
        and is started again by its supervisor.
        """
        if self._session.number is not None:
            node = Create(broker_path(self.broker), self.lifecycle.incarnation_id, ephemeral=True)
            self._session.ask((node,), self._registered_in_zookeeper)

    def _registered_in_zookeeper(self, now: int, results: tuple[Result, ...]) -> None:
        (created,) = results
        if created.code is Code.OK and created.znode is not None:
            self.leadership.proposals.broker_epoch = self.lifecycle.epoch = BrokerEpoch(created.znode.created)
            self._begin_to_serve(now)
            self.controller.compete()
        else:
            self.outbox.after(self._constants.registration_retry_ms, RegistrationDue())

    def _session_expired(self, _now: int, message: SessionExpired) -> None:
        """Begin again without what was bound to the session. Led partitions are led on until a request is refused."""
        if message.session == self._session.number:
            self._session.connect()
            self.controller.resign()
            self.leadership.proposals.lost()

    def _changed(self, _now: int, message: Changed) -> None:
        if message.session == self._session.number:
            self.controller.changed(message.path)

    # -------------------------------------------------------------- what the controller pushes

    def _is_stale(self, controller_epoch: int) -> bool:
        """A controller that was replaced is not obeyed any more."""
        if controller_epoch < self._controller_epoch:
            return True
        self._controller_epoch = self._isr_changes.controller_epoch = controller_epoch
        return False

    def _leader_and_isr(self, now: int, request: LeaderAndIsr) -> None:
        if self._is_stale(request.controller_epoch):
            return
        if request.full:
            present = {item.topic_partition for item in request.partitions}
            self._delete([key for key in self.disk.replicas if key not in present])
        for item in request.partitions:
            self._lead_or_follow(now, item)

    def _lead_or_follow(self, now: int, item: MetadataPartition) -> None:
        """Take a newer leader epoch; an equal one says nothing that the leader does not know better."""
        key, registration = item.topic_partition, item.registration
        if registration is None or registration.leader_epoch <= self._leader_epochs.get(key, -1):
            return
        self._leader_epochs[key] = registration.leader_epoch
        self._assign(now, item)
        if self.lifecycle.wants_shut_down:
            self.following.unfollow(key)  # a replica that leaves follows no leader any more

    def _update_metadata(self, _now: int, request: UpdateMetadata) -> None:
        if not self._is_stale(request.controller_epoch):
            self.brokers.clear()
            self.brokers.update(request.brokers)

    def _stop_replica(self, _now: int, request: StopReplica) -> None:
        if self._is_stale(request.controller_epoch):
            return
        for key in request.partitions:
            self.leadership.resign(key)
            self.following.unfollow(key)
        if request.delete:
            self._delete(request.partitions)

    def _delete(self, keys: list[TopicPartition] | tuple[TopicPartition, ...]) -> None:
        for key in keys:
            self.leadership.resign(key)
            self.following.unfollow(key)
            self._leader_epochs.pop(key, None)
            self.disk.remove(key)

    # -------------------------------------------------------------- what it asks of the controller

    def _ask_controller(self, items: tuple[AlterPartitionItem, ...]) -> None:
        if self.controller.active is None:
            self.leadership.proposals.lost()
        else:
            self.outbox.send(self.controller.active, AlterPartitionRequest(self.broker, self.lifecycle.epoch, items))

    def _controller_moved(self) -> None:
        """Another broker is the controller: what the one before was asked is asked again."""
        if self._constants.switches.isr_changes_through_controller:
            self.leadership.proposals.lost()

    def _disconnected(self, now: int, message: Disconnected) -> None:
        super()._disconnected(now, message)
        if message.peer == self.controller.active:
            self._controller_moved()

    def shut_down(self, _now: int) -> None:
        """Operator sends SIGTERM: ask the controller to take everything off this broker; after three tries, just go."""
        self.lifecycle.wants_shut_down = True
        if self._shutdown_attempts == _CONTROLLED_SHUTDOWN_ATTEMPTS or not self._constants.controlled_shutdown_enable:
            self._end()
            return
        self._shutdown_attempts += 1
        if self.controller.active is not None:
            self.outbox.send(self.controller.active, ControlledShutdownRequest(self.broker, self.lifecycle.epoch))
        self.outbox.after(_CONTROLLED_SHUTDOWN_RETRY_MS, ControlledShutdownDue())

    def _may_stop(self, _now: int, response: ControlledShutdownResponse) -> None:
        if response.remaining == 0:
            self._end()

    def _end(self) -> None:
        self._session.close()
        self.lifecycle.has_ended = True


# ISR changes of a leader before 2.7: it wrote the partition's state into ZooKeeper itself, and told later.
#
# Departs from Kafka: the leader's thread does not stand still while ZooKeeper writes.


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
        """Leader writes ISRs, each only if the state was not written since it last heard of it."""
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
