"""A client process: finds leaders and coordinators by asking brokers, and asks again when they turn out wrong.

Knows what answers told it. Attach one with ``cluster.connect(node, client)``; after a call from outside the loop, such
as a producer's ``send``, carry out what follows with ``cluster.flush(node)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.contracts.identifiers import TopicId, TopicPartition
from streaming.model.constants import Error
from streaming.model.messages.clients import (
    ClientMetadataRequest,
    ClientMetadataResponse,
    CoordinatorKey,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    RequestTimeout,
    RetryDue,
    WakeUp,
)
from streaming.model.messages.network import Disconnected, Message, NetworkClient, Outbox, Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.constants import Constants


class Client:
    """Base of producers and consumers. Subclasses say in :meth:`poll` what they do whenever something has changed.

    Attributes:
        has_ended: it may go.
        network: its requests.
    """

    def __init__(self, node: BrokerId, bootstrap: Sequence[BrokerId], constants: Constants) -> None:
        self.node = node
        self.outbox = Outbox()
        self.has_ended = False
        self.constants = constants
        self.network = NetworkClient(node, constants.request_timeout_ms, self.outbox)
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            RequestTimeout: self.network.timed_out,
            Disconnected: self._disconnected,
            RetryDue: self._retry,
            WakeUp: lambda _now, _timer: None,
        }
        self._bootstrap = tuple(bootstrap)
        self._asked = 0
        self._is_asking = False
        self._is_backing_off = False
        self._leaders: dict[TopicPartition, BrokerId] = {}
        self._leader_epochs: dict[TopicPartition, int] = {}
        self._coordinators: dict[CoordinatorKey, BrokerId] = {}
        self._partition_counts: dict[TopicId, int] = {}
        self._lookups: dict[TopicPartition | CoordinatorKey | TopicId, None] = {}

    def receive(self, now: int, payload: Message | Timer) -> None:
        """Take one message or timer; what has no handler is an answer to one of its requests."""
        self.handlers.get(type(payload), self.network.answered)(now, payload)
        self.act(now)

    def act(self, now: int) -> None:
        """Do what can be done now. Calls of a client from outside the loop end with this."""
        self.poll(now)
        self._ask()

    def poll(self, now: int) -> None:
        """Send whatever can be sent now; called after every input."""
        raise NotImplementedError

    def close(self) -> None:
        """The application ends."""
        self.has_ended = True

    # -------------------------------------------------------------- where to send

    def leader_of(self, key: TopicPartition) -> BrokerId | None:
        """Give the leader it knows; None while it has to ask for it."""
        leader = self._leaders.get(key)
        if leader is None:
            self._lookups[key] = None
        return leader

    def leader_epoch_of(self, key: TopicPartition) -> int:
        """Give the newest leader epoch it has heard of; -1 before any."""
        return self._leader_epochs.get(key, -1)

    def coordinator_of(self, key: CoordinatorKey) -> BrokerId | None:
        """Give the coordinator it knows; None while it has to ask for it."""
        coordinator = self._coordinators.get(key)
        if coordinator is None:
            self._lookups[key] = None
        return coordinator

    def partitions_of(self, topic_id: TopicId) -> int | None:
        """Count the partitions of a topic, as far as it knows; None while it has to ask."""
        count = self._partition_counts.get(topic_id)
        if count is None:
            self._lookups[topic_id] = None
        return count

    def refresh(self, topics: Iterable[TopicId]) -> None:
        """Ask again how many partitions these topics have."""
        self._lookups |= dict.fromkeys(topics)

    def forget_leader(self, key: TopicPartition) -> None:
        """Ask again, after a wait: its leader was wrong (NOT_LEADER_OR_FOLLOWER, a lost connection)."""
        if self._leaders.pop(key, None) is not None:
            self._back_off()

    def forget_coordinator(self, key: CoordinatorKey) -> None:
        """Ask again, after a wait: its coordinator was wrong (NOT_COORDINATOR, a lost connection)."""
        if self._coordinators.pop(key, None) is not None:
            self._back_off()

    def _disconnected(self, now: int, message: Disconnected) -> None:
        for key in [key for key, leader in self._leaders.items() if leader == message.peer]:
            self.forget_leader(key)
        for group in [key for key, coordinator in self._coordinators.items() if coordinator == message.peer]:
            self.forget_coordinator(group)
        self.network.disconnected(now, message)

    def _back_off(self) -> None:
        if not self._is_backing_off:
            self._is_backing_off = True
            self.outbox.after(self.constants.retry_backoff_ms, RetryDue())

    def _retry(self, _now: int, _timer: RetryDue) -> None:
        self._is_backing_off = False

    def any_broker(self) -> BrokerId:
        """Give the next bootstrap broker, in turn."""
        self._asked += 1
        return self._bootstrap[(self._asked - 1) % len(self._bootstrap)]

    def _ask(self) -> None:
        """Ask the next broker for what is wanted, one request at a time."""
        if not self._lookups or self._is_asking or self._is_backing_off:
            return
        self._is_asking = True
        broker = self.any_broker()
        first = next(iter(self._lookups))
        if isinstance(first, CoordinatorKey):
            request = FindCoordinatorRequest(self.network.header(), first)
            self.network.send(broker, request, lambda now, answer: self._coordinator_found(now, first, answer))
        else:
            keys = tuple(key for key in self._lookups if isinstance(key, TopicPartition))
            topics = tuple(TopicId(key) for key in self._lookups if isinstance(key, str))
            self.network.send(broker, ClientMetadataRequest(self.network.header(), keys, topics), self._learned)

    def _coordinator_found(self, _now: int, key: CoordinatorKey, response: FindCoordinatorResponse | None) -> None:
        self._is_asking = False
        if response is None or response.error is not Error.NONE:
            self._back_off()
        else:
            self._coordinators[key] = response.coordinator
            del self._lookups[key]

    def _learned(self, _now: int, response: ClientMetadataResponse | None) -> None:
        """Take leaders in; an older leader epoch than the newest known comes from a broker that lags (KIP-320)."""
        self._is_asking = False
        for item in response.partitions if response else ():
            key = item.topic_partition
            if item.error is Error.NONE and item.leader_epoch >= self.leader_epoch_of(key):
                self._leaders[key] = item.leader
                self._leader_epochs[key] = item.leader_epoch
                self._lookups.pop(key, None)
        for topic_id, count in response.topics if response else ():
            if count:
                self._partition_counts[topic_id] = count
                self._lookups.pop(topic_id, None)
        asked = (
            (*(partition.topic_partition for partition in response.partitions), *dict(response.topics))
            if response
            else ()
        )
        if response is None or any(key in self._lookups for key in asked):
            self._back_off()
