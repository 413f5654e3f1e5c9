"""What administrators do to topics (``ReplicationControlManager``, ``ConfigurationControlManager``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
from streaming.contracts.records import RESOURCE_TOPIC, ClearElr, Config, RemoveTopic, Topic
from streaming.model.controller.partition import PartitionRegistration, TopicRegistration
from streaming.model.controller.placement import check_assignments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.model.controller.metadata_writer import MetadataWriter

MIN_ISR: Final = "min.insync.replicas"


class Topics:
    """Topics, their configuration and their partitions."""

    def __init__(self, writer: MetadataWriter) -> None:
        self._writer = writer
        self._registry = writer.registry

    def create(
        self,
        now: int,
        topic: TopicRegistration,
        assignments: Sequence[tuple[BrokerId, ...]],
        config: Mapping[str, str],
    ) -> None:
        """Administrator creates a topic. Enabled when every partition has an active replica to lead it.

        Raises:
            PlacementRefused: INVALID_REPLICA_ASSIGNMENT; nothing was written.
        """
        check_assignments(assignments, self._registry.brokers)
        self._registry.topics[topic.topic_id] = topic
        self._writer.write(Topic(topic=topic.topic, topic_id=topic.topic_id))
        for key, value in config.items():
            self._writer.write(Config(resource_type=RESOURCE_TOPIC, resource_name=topic.topic, key=key, value=value))
        if MIN_ISR in config and self._writer.elr_enabled:
            self._writer.write(ClearElr(topic=topic.topic))
        for number, replicas in enumerate(assignments):
            isr = tuple(broker for broker in replicas if self._registry.is_active(broker))
            partition = PartitionRegistration(replicas, isr, isr[0])
            self._writer.create(topic, TopicPartition(topic.topic_id, number), partition)
        self._writer.commit(now)

    def delete(self, now: int, topic_id: TopicId) -> None:
        """Administrator deletes a topic: one record, however many partitions."""
        topic = self._registry.topics[topic_id]
        for number in range(topic.partitions):
            self._registry.replace(topic, TopicPartition(topic_id, number), None, Cause.DELETED)
        del self._registry.topics[topic_id]
        self._writer.write(RemoveTopic(topic_id=topic_id))
        self._writer.commit(now)
