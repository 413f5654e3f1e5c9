"""What a broker tells clients of leaders and coordinators (``KRaftMetadataCache``). Changes nothing.

Departs from Kafka: a broker keeps metadata of the partitions it hosts only; of others it tells what the controller
knows at this moment, where Kafka's broker would tell what it has read of the metadata log so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from streaming.contracts.identifiers import NO_LEADER, BrokerId, TopicId, TopicPartition
from streaming.contracts.partition_for import partition_for
from streaming.model.errors import Error
from streaming.model.messages.client_metadata import (
    ClientMetadataRequest,
    ClientMetadataResponse,
    CoordinatorKey,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    PartitionLeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.model.broker.following import Following
    from streaming.model.broker.leadership import Leadership
    from streaming.model.messages.outbox import Outbox
    from streaming.model.registrations import PartitionRegistration, TopicRegistration
    from streaming.model.storage.disk import Disk


class Directory(Protocol):
    """What the controller knows of partitions that a broker does not host."""

    def topic_named(self, name: str) -> TopicRegistration | None:
        """Give a topic by its name."""

    def partitions_of(self, topic_id: TopicId) -> int:
        """Count the partitions of a topic, 0 if there is none."""

    def registration_of(self, key: TopicPartition) -> PartitionRegistration | None:
        """Give a partition's registration."""


class MetadataCache:
    """Answers from the broker's own view where it has one."""

    def __init__(
        self, leadership: Leadership, following: Following, disk: Disk, directory: Directory, outbox: Outbox
    ) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            ClientMetadataRequest: self._answer_leaders,
            FindCoordinatorRequest: self._answer_coordinator,
        }
        self._leadership = leadership
        self._following = following
        self._disk = disk
        self._directory = directory
        self._outbox = outbox

    def leader_of(self, key: TopicPartition) -> PartitionLeader:
        """Give the leader of a partition as this broker knows it."""
        led, followed = self._leadership.led.get(key), self._following.leader_of(key)
        if led is not None:
            return PartitionLeader(key, Error.NONE, self._leadership.broker, led.committed.leader_epoch)
        if followed is not None:
            return PartitionLeader(key, Error.NONE, *followed)
        state = None if self._disk.has(key) else self._directory.registration_of(key)
        if state is None and not self._disk.has(key):
            return PartitionLeader(key, Error.UNKNOWN_TOPIC_OR_PARTITION)
        if state is None or state.leader == NO_LEADER:
            return PartitionLeader(key, Error.LEADER_NOT_AVAILABLE)
        return PartitionLeader(key, Error.NONE, state.leader, state.leader_epoch)

    def coordinator_of(self, key: CoordinatorKey) -> BrokerId | None:
        """Give the leader of the partition that keeps the state of a group or transactional id."""
        topic = self._directory.topic_named(key.topic)
        if topic is None:
            return None
        leader = self.leader_of(TopicPartition(topic.topic_id, partition_for(key.key, topic.partitions)))
        return leader.leader if leader.error is Error.NONE else None

    def partitions_of(self, topic_id: TopicId) -> int:
        """Count the partitions of a topic, 0 if there is none."""
        return self._directory.partitions_of(topic_id)

    def _answer_leaders(self, _now: int, request: ClientMetadataRequest) -> None:
        answer = ClientMetadataResponse(
            request.header.correlation_id,
            tuple(self.leader_of(key) for key in request.partitions),
            tuple((topic_id, self.partitions_of(topic_id)) for topic_id in request.topics),
        )
        self._outbox.send(request.header.sender, answer)

    def _answer_coordinator(self, _now: int, request: FindCoordinatorRequest) -> None:
        coordinator = self.coordinator_of(request.key)
        number = request.header.correlation_id
        if coordinator is None:
            answer = FindCoordinatorResponse(number, Error.COORDINATOR_NOT_AVAILABLE)
        else:
            answer = FindCoordinatorResponse(number, Error.NONE, coordinator)
        self._outbox.send(request.header.sender, answer)
