"""One broker process: life cycle, metadata, and its two halves as leader and follower.

A process knows its disk, its configuration and what messages told it. It ends by :attr:`Broker.has_ended` (a clean
stop) or by being forgotten (a crash); the disk stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.identifiers import NO_LEADER, TopicPartition
from streaming.model.broker.cleanup import LogCleanup
from streaming.model.broker.controller_channel import ControllerChannel
from streaming.model.broker.epoch_ends import EpochEnds
from streaming.model.broker.following import Following
from streaming.model.broker.leadership import Leadership
from streaming.model.broker.metadata_cache import Directory, MetadataCache
from streaming.model.broker.produce import Produce
from streaming.model.broker.producer_ids import ProducerIds
from streaming.model.broker.purgatory import Purgatory
from streaming.model.broker.sockets import Sockets
from streaming.model.messages.alter_partition import AlterPartitionResponse
from streaming.model.messages.client_metadata import RequestTimeout
from streaming.model.messages.errors import Error
from streaming.model.messages.fetch import FetchRequest
from streaming.model.messages.membership import (
    NO_BROKER_EPOCH,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    MetadataDelta,
    MetadataPartition,
    MetadataRequest,
)
from streaming.model.messages.outbox import Disconnected, Message, Outbox, Timer
from streaming.model.messages.timers import (
    AlterPartitionDue,
    FetchWaitOver,
    HeartbeatDue,
    IsrExpiration,
    OperationExpired,
    RegistrationDue,
    StartUp,
)
from streaming.model.network_client import NetworkClient

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

    from streaming.contracts.identifiers import BrokerEpoch, BrokerId
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.constants import Constants
    from streaming.model.controller.partition import BrokerRegistration, TopicRegistration
    from streaming.model.storage.disk import Disk

# BrokerLifecycleManager hurries while it starts and once while it stops.
_STARTING_HEARTBEAT_MS = 10
_STOPPING_HEARTBEAT_MS = 50


class Broker:
    """A broker process. Feed it with :meth:`receive`, then empty ``outbox``.

    Attributes:
        incarnation_id: drawn by the driver for each process.
        has_ended: it may go: the controller has agreed to a clean stop.
        channel: the way to the active controller.
        rack: ``broker.rack``, told at registration.
    """

    def __init__(
        self, broker: BrokerId, incarnation_id: str, constants: Constants, disk: Disk, directory: Directory
    ) -> None:
        self.broker = broker
        self.incarnation_id = incarnation_id
        self.outbox = Outbox()
        self.has_ended = False
        self.rack: str | None = None
        self.brokers: dict[BrokerId, BrokerRegistration] = {}
        self.purgatory = Purgatory(self.outbox)
        self.network = NetworkClient(broker, constants.request_timeout_ms, self.outbox)
        self.channel = ControllerChannel(constants, self.outbox, told=self._take, lost=self._ask_again)
        self.leadership = Leadership(broker, constants, self.brokers, self.purgatory, self.channel)
        self.following = Following(broker, constants, disk.replicas, self.outbox)
        self.metadata_cache = MetadataCache(self.leadership, self.following, disk, directory, self.outbox)
        self.produce = Produce(self.leadership, self.purgatory, constants, self.outbox)
        self.producer_ids = ProducerIds(self.network, self.channel)
        self.cleanup = LogCleanup(disk, self.leadership, constants, self.outbox)
        self.disk = disk
        self._constants = constants
        self._epoch = NO_BROKER_EPOCH
        self._metadata_offset = -1
        self._wants_shut_down = False
        self._was_told_to_wait = False
        self._is_asking = False
        self._heartbeat_number = 0
        self._registration_retry_ms = constants.registration_retry_ms
        self._previous_epoch = disk.clean_shutdown_epoch
        disk.clean_shutdown_epoch = NO_BROKER_EPOCH
        epoch_ends = EpochEnds(self.leadership, constants.switches, self.outbox)
        self._handlers = self._own_handlers() | self.following.handlers
        for component in (self.metadata_cache, self.produce, self.producer_ids, self.cleanup, epoch_ends):
            self._handlers |= component.handlers
        served = (self.metadata_cache.handlers, self.produce.handlers, epoch_ends.handlers)
        self.sockets = Sockets({FetchRequest, *(each for handlers in served for each in handlers)})

    def _own_handlers(self) -> dict[type, Callable[[int, Any], None]]:
        return {
            FetchRequest: self.leadership.fetch,
            FetchWaitOver: lambda _, it: self.leadership.fetch_wait_over(it),
            IsrExpiration: self._expire_isr,
            AlterPartitionResponse: self.leadership.proposals.answered,
            AlterPartitionDue: lambda _now, _it: self.leadership.proposals.retry(),
            StartUp: self._started,
            BrokerRegistrationResponse: self._registered,
            RegistrationDue: self._register,
            BrokerHeartbeatResponse: self._heard,
            HeartbeatDue: self._heartbeat,
            MetadataDelta: self._apply,
            Disconnected: self._disconnected,
            RequestTimeout: self.network.timed_out,
            OperationExpired: self.purgatory.expired,
            **self.channel.handlers,
        }

    @property
    def epoch(self) -> BrokerEpoch:
        """The epoch of this uptime, -1 before the registration."""
        return self._epoch

    @property
    def is_running(self) -> bool:
        """Whether the controller has ever unfenced this process (BrokerState RUNNING)."""
        return self.sockets.are_open

    def led_partitions(self) -> Collection[LeaderPartition]:
        """Give the partitions it believes to lead."""
        return self.leadership.led.values()

    def start(self) -> None:
        """Operator starts the process; it needs its start-up time before it says anything."""
        self.outbox.after(self._constants.start_up_ms, StartUp())

    def _started(self, now: int, _timer: StartUp) -> None:
        """Follow the metadata log, ask for a registration, look for lagging followers from now on.

        As in Kafka, replication does not wait for the registration: a process that replaces a crashed one fetches
        while the controller still counts on the old one. It answers nobody yet (:meth:`_begin_to_serve`).
        """
        self.channel.is_listening = True
        self.outbox.after(self._constants.isr_expiration_ms, IsrExpiration())
        self.cleanup.start()
        self._register(now, RegistrationDue())

    def receive(self, now: int, payload: Message | Timer) -> None:
        """Take one message or timer; what follows is in ``outbox``."""
        if not self.sockets.hold(payload):
            self._handlers[type(payload)](now, payload)
        if self.purgatory.touched:
            self.purgatory.complete(now)
        self.leadership.proposals.send()
        self.following.send()

    def append(self, now: int, appends: Iterable[tuple[TopicPartition, int]], *, acks_all: bool) -> int:
        """Anonymous producers write: (partition, records). Returns how many records were refused."""
        if not self.sockets.are_open:
            return sum(count for _, count in appends)
        refused = self.leadership.append(now, appends, acks_all=acks_all)
        if self.purgatory.touched:
            self.purgatory.complete(now)
        return refused

    def _take(self, now: int, payload: Message | Timer) -> None:
        self._handlers[type(payload)](now, payload)

    def shut_down(self, now: int) -> None:
        """Operator sends SIGTERM: ask the controller for a controlled shutdown, or (if that is disabled) just stop."""
        self._wants_shut_down = True
        if self._constants.controlled_shutdown_enable:
            self._beat(now)
        else:
            self._stop()

    def _stop(self) -> None:
        self.disk.stop_cleanly(self._epoch)
        self.has_ended = True

    def _disconnected(self, now: int, message: Disconnected) -> None:
        self.following.disconnected(message.peer)
        self.network.disconnected(now, message)
        self.channel.disconnected(now, message.peer)

    def _expire_isr(self, now: int, timer: IsrExpiration) -> None:
        self.outbox.after(self._constants.isr_expiration_ms, timer)
        self.leadership.expire_isr(now)

    # -------------------------------------------------------------- life cycle

    def _register(self, _now: int, _timer: RegistrationDue) -> None:
        if not self.channel.is_open:
            self.channel.send(MetadataRequest(self.broker))
        request = BrokerRegistrationRequest(self.broker, self.incarnation_id, self._previous_epoch, self.rack)
        self.channel.send(request)
        self._is_asking = True

    def _registered(self, now: int, response: BrokerRegistrationResponse) -> None:
        self._is_asking = False
        if response.error is not Error.NONE:
            self.outbox.after(self._registration_retry_ms, RegistrationDue())
            longest = self._constants.broker_session_timeout_ms // 2
            self._registration_retry_ms = min(2 * self._registration_retry_ms, longest)
            return
        self._epoch = response.broker_epoch
        self.leadership.proposals.broker_epoch = self._epoch
        self.following.broker_epoch = self._epoch
        self._beat(now)

    def _heartbeat(self, now: int, timer: HeartbeatDue) -> None:
        if timer.number == self._heartbeat_number:
            self._beat(now)

    def _beat(self, _now: int) -> None:
        if self._epoch != NO_BROKER_EPOCH:
            self.channel.send(
                BrokerHeartbeatRequest(self.broker, self._epoch, self._metadata_offset, False, self._wants_shut_down)
            )
            self._is_asking = True

    def _heard(self, now: int, response: BrokerHeartbeatResponse) -> None:
        self._is_asking = False
        if response.should_shut_down:
            self._stop()
            return
        delay = self._constants.broker_heartbeat_interval_ms
        if self._wants_shut_down and not self._was_told_to_wait:
            self._was_told_to_wait, delay = True, _STOPPING_HEARTBEAT_MS
        elif not self.sockets.are_open and response.is_fenced:
            delay = _STARTING_HEARTBEAT_MS
        if not self.sockets.are_open and not response.is_fenced:
            self._begin_to_serve(now)
        self._heartbeat_number += 1  # only the newest timer counts
        self.outbox.after(delay, HeartbeatDue(self._heartbeat_number))

    def _ask_again(self, now: int, former: BrokerId) -> None:
        """Nobody knows whether the former controller did what it was asked: ask the next one, after a wait."""
        self.network.disconnected(now, Disconnected(former))
        self.leadership.proposals.lost()
        if not self._is_asking:
            return
        self._is_asking = False
        if self._epoch == NO_BROKER_EPOCH:
            self.outbox.after(self._constants.registration_retry_ms, RegistrationDue())
        else:
            self._heartbeat_number += 1
            self.outbox.after(self._constants.registration_retry_ms, HeartbeatDue(self._heartbeat_number))

    def _begin_to_serve(self, now: int) -> None:
        """From now on it answers; what waited in its sockets first."""
        for request in self.sockets.open():
            self._take(now, request)

    # -------------------------------------------------------------- metadata

    def _apply(self, now: int, delta: MetadataDelta) -> None:
        """Take in a stretch of the metadata log."""
        self._metadata_offset = delta.metadata_offset
        for broker, registration in delta.brokers:
            if registration is None:
                self.brokers.pop(broker, None)
            else:
                self.brokers[broker] = registration
        if delta.snapshot:
            present = {item.topic_partition for item in delta.partitions}
            for key in [key for key in self.disk.replicas if key not in present]:
                self._drop(key)
        for item in delta.partitions:
            self._assign(now, item)
        for topic in delta.topics:
            self.leadership.configure(topic)
            self._configure_logs(now, topic)

    def _configure_logs(self, now: int, topic: TopicRegistration) -> None:
        for number in range(topic.partitions):
            key = TopicPartition(topic.topic_id, number)
            if key in self.disk.replicas:
                self.cleanup.configure(now, key, self.disk.replicas[key], topic)

    def _assign(self, now: int, item: MetadataPartition) -> None:
        key, registration = item.topic_partition, item.registration
        if registration is None or self.broker not in registration.replicas:
            self._drop(key)
            return
        replica = self.disk.replica(key)
        self.cleanup.configure(now, key, replica, item.topic)
        if registration.leader == self.broker:
            self.following.unfollow(key)
            self.leadership.lead(now, key, item.topic, registration, replica)
        else:
            self.leadership.resign(key)
            if registration.leader == NO_LEADER:
                self.following.unfollow(key)
            else:
                self.following.follow(key, registration.leader, registration.leader_epoch)

    def _drop(self, key: TopicPartition) -> None:
        self.leadership.resign(key)
        self.following.unfollow(key)
        self.disk.replicas.pop(key, None)
