"""One broker process: life cycle, metadata, and its two halves as leader and follower.

A process knows its disk, its configuration and what messages told it. It ends by :attr:`Broker.has_ended` (a clean
stop) or by being forgotten (a crash); the disk stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from streaming.contracts.identifiers import NO_LEADER, TopicPartition
from streaming.model.broker.cleanup import LogCleanup
from streaming.model.broker.consumer_reads import ConsumerReads, Directory, MetadataCache
from streaming.model.broker.controller_channel import ControllerChannel, Sockets
from streaming.model.broker.following import FollowedPartitions
from streaming.model.broker.leadership import EpochEnds, Leadership
from streaming.model.broker.lifecycle import Lifecycle
from streaming.model.broker.produce import Produce, ProducerIds, TransactionMarkers, Verification
from streaming.model.broker.purgatory import Purgatory
from streaming.model.coordinators.groups import GroupCoordinator
from streaming.model.coordinators.transactions import TransactionCoordinator
from streaming.model.messages.clients import CONSUMER_OFFSETS, TRANSACTION_STATE, RequestTimeout
from streaming.model.messages.membership import MetadataDelta, MetadataPartition
from streaming.model.messages.network import Disconnected, Message, NetworkClient, Outbox, Timer
from streaming.model.messages.replication import AlterPartitionResponse, FetchRequest
from streaming.model.messages.timers import AlterPartitionDue, FetchWaitOver, IsrExpiration, OperationExpired, StartUp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from streaming.contracts.identifiers import BrokerEpoch, BrokerId
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.constants import Constants
    from streaming.model.messages.registrations import BrokerRegistration, TopicRegistration
    from streaming.model.storage.disk import Disk


class Broker:
    """A broker process. Feed it with :meth:`receive`, then empty ``outbox``.

    Attributes:
        lifecycle: what the controller makes of it.
        channel: the way to the active controller.
    """

    def __init__(
        self, broker: BrokerId, incarnation_id: str, constants: Constants, disk: Disk, directory: Directory
    ) -> None:
        self.broker = broker
        self.outbox = Outbox()
        self.brokers: dict[BrokerId, BrokerRegistration] = {}
        self.purgatory = Purgatory(self.outbox)
        self.network = NetworkClient(broker, constants.request_timeout_ms, self.outbox)
        self.channel = ControllerChannel(constants, self.outbox, received=self._take, lost=self._ask_again)
        self.leadership = Leadership(broker, constants, self.brokers, self.purgatory, self.channel)
        self.following = FollowedPartitions(broker, constants, disk.replicas, self.purgatory, self.outbox)
        self.cleanup = LogCleanup(disk, self.leadership, constants, self.outbox)
        self.disk = disk
        self.apis = Apis(self, directory, constants)
        self._constants = constants
        self.lifecycle = Lifecycle(
            broker,
            incarnation_id,
            constants,
            disk,
            self.channel,
            registered=self._registered,
            unfenced=self._begin_to_serve,
        )
        self._handlers = self._own_handlers()
        for component in (self.lifecycle, self.following, self.apis, self.cleanup):
            self._handlers |= component.handlers
        self.sockets = Sockets({FetchRequest, *self.apis.requests})

    def _own_handlers(self) -> dict[type, Callable[[int, Any], None]]:
        return {
            FetchRequest: self.leadership.fetch,
            FetchWaitOver: lambda _, message: self.leadership.fetch_wait_over(message),
            IsrExpiration: self._expire_isr,
            AlterPartitionResponse: self.leadership.proposals.answered,
            AlterPartitionDue: lambda _now, _message: self.leadership.proposals.retry(),
            StartUp: self._started,
            MetadataDelta: self._apply,
            Disconnected: self._disconnected,
            RequestTimeout: self.network.timed_out,
            OperationExpired: self.purgatory.expired,
            **self.channel.handlers,
        }

    @property
    def has_ended(self) -> bool:
        """True if it may go: it has stopped as agreed."""
        return self.lifecycle.has_ended

    def led_partitions(self) -> Collection[LeaderPartition]:
        """Give the partitions it believes to lead."""
        return self.leadership.led.values()

    def partitions_with_late_transactions(self, now: int) -> int:
        """Count the led partitions with a transaction that hangs; costs as much as it leads."""
        longest = self._constants.transaction_max_timeout_ms
        return sum(partition.has_late_transaction(now, longest) for partition in self.led_partitions())

    def start(self) -> None:
        """Operator starts the process; it needs its start-up time before it says anything."""
        self.outbox.after(self._constants.start_up_ms, StartUp())

    def _started(self, _now: int, _timer: StartUp) -> None:
        """Follow the metadata log, ask for a registration, look for lagging followers from now on.

        As in Kafka, replication does not wait for the registration: a process that replaces a crashed one fetches
        while the controller still counts on the old one. It answers no request yet (:meth:`_begin_to_serve`).
        """
        self.channel.is_listening = True
        self.outbox.after(self._constants.isr_expiration_ms, IsrExpiration())
        self.cleanup.start()
        self.lifecycle.register()

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

    def shut_down(self, _now: int) -> None:
        """Operator sends SIGTERM."""
        self.lifecycle.shut_down()

    def fail_log_dir(self, name: str) -> None:
        """Fate breaks a directory: what lies there is led and followed no more (``ReplicaManager``, KIP-112).

        The next heartbeat tells the controller. Without a directory left the process halts.
        """
        self.disk.log_dirs.offline[name] = None
        for key in [key for key in self.disk.replicas if self.disk.log_dirs.is_offline(key)]:
            self._resign(key)
            self.following.unfollow(key)
        if not self.disk.log_dirs.online:
            self.lifecycle.has_ended = True

    def _disconnected(self, now: int, message: Disconnected) -> None:
        self.following.disconnected(message.peer)
        self.network.disconnected(now, message)
        self.channel.disconnected(now, message.peer)

    def _expire_isr(self, now: int, timer: IsrExpiration) -> None:
        self.outbox.after(self._constants.isr_expiration_ms, timer)
        self.leadership.expire_isr(now)

    def _registered(self, epoch: BrokerEpoch) -> None:
        self.leadership.proposals.broker_epoch = epoch
        self.following.broker_epoch = epoch

    def _ask_again(self, now: int, former: BrokerId) -> None:
        self.network.disconnected(now, Disconnected(former))
        self.leadership.proposals.lost()
        self.lifecycle.ask_again()

    def _begin_to_serve(self, now: int) -> None:
        """From now on it answers; what waited in its sockets first."""
        self.lifecycle.is_running = True
        for request in self.sockets.open():
            self._take(now, request)

    # -------------------------------------------------------------- metadata

    def _apply(self, now: int, delta: MetadataDelta) -> None:
        """Take in a stretch of the metadata log."""
        self.lifecycle.metadata_offset = delta.metadata_offset
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
        self.lifecycle.report_directories()

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
        if self.disk.log_dirs.is_offline(key):
            return
        replica = self.disk.replica(key)
        self.cleanup.configure(now, key, replica, item.topic)
        if registration.leader == self.broker:
            self.following.unfollow(key)
            self.leadership.lead(now, key, item.topic, registration, replica)
            self.apis.elected(now, self.leadership.led[key], item.topic)
        else:
            self._resign(key)
            if registration.leader == NO_LEADER:
                self.following.unfollow(key)
            else:
                self.following.follow(key, registration.leader, registration.leader_epoch)

    def _drop(self, key: TopicPartition) -> None:
        self._resign(key)
        self.following.unfollow(key)
        self.disk.remove(key)

    def _resign(self, key: TopicPartition) -> None:
        self.leadership.resign(key)
        self.apis.resigned(key)


# Requests of clients and of other brokers, one by one (``KafkaApis``).


class Parts(Protocol):
    """Parts of a broker's process that answer requests."""

    leadership: Leadership
    following: FollowedPartitions
    purgatory: Purgatory
    network: NetworkClient
    channel: ControllerChannel
    disk: Disk
    outbox: Outbox


class Coordinator(Protocol):
    """Whatever is coordinated by the leader of an internal topic's partition."""

    def elected(self, now: int, partition: LeaderPartition, topic: TopicRegistration) -> None:
        """This broker leads a partition of the topic, or still leads it."""

    def resigned(self, key: TopicPartition) -> None:
        """This broker does not lead a partition, whichever, or no more."""


class Apis:
    """The parts that answer.

    Attributes:
        handlers: by type of message.
        requests: those types that others send first.
        coordinators: by internal topic; told who leads its partitions.
    """

    def __init__(self, parts: Parts, directory: Directory, constants: Constants) -> None:
        leadership, network, outbox = parts.leadership, parts.network, parts.outbox
        self.metadata_cache = MetadataCache(leadership, parts.following, parts.disk, directory, outbox)
        self.verification = Verification(leadership, self.metadata_cache, constants, network)
        self.produce = Produce(leadership, self.verification, parts.purgatory, constants, outbox)
        self.producer_ids = ProducerIds(network, parts.channel)
        self.transactions = TransactionCoordinator(
            self.produce, self.producer_ids, self.metadata_cache, constants, network
        )
        self.groups = GroupCoordinator(self.produce, self.metadata_cache, constants, outbox)
        self.coordinators: dict[str, Coordinator] = {
            TRANSACTION_STATE: self.transactions,
            CONSUMER_OFFSETS: self.groups,
        }
        self.handlers: dict[type, Callable[[int, Any], None]] = {}
        for part in (
            self.metadata_cache,
            self.verification,
            self.produce,
            self.producer_ids,
            self.transactions,
            self.groups,
            EpochEnds(leadership, constants.switches, outbox),
            ConsumerReads(leadership, parts.following, parts.purgatory, constants, outbox),
            TransactionMarkers(self.produce, constants, outbox),
        ):
            self.handlers |= part.handlers
        # The rest are answers to this broker's own requests, and timers.
        self.requests = frozenset(kind for kind in self.handlers if kind.__name__.endswith("Request"))

    def elected(self, now: int, partition: LeaderPartition, topic: TopicRegistration) -> None:
        """This broker leads a partition; if a coordinator keeps its state there, it is told."""
        if topic.topic in self.coordinators:
            self.coordinators[topic.topic].elected(now, partition, topic)

    def resigned(self, key: TopicPartition) -> None:
        """This broker does not lead a partition, or no more."""
        for coordinator in self.coordinators.values():
            coordinator.resigned(key)
