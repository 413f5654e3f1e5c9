"""What the ZooKeeper controller remembers of the cluster (``ControllerContext``). Knows no messages.

It is a copy: ZooKeeper has the truth, and a leader may have changed its ISR there since (before KIP-497).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
from streaming.model.controller.registry import Registry
from streaming.model.zookeeper.layout import TopicData, registration_of
from streaming.model.zookeeper.partition_states import PartitionState, enter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.model.messages.zookeeper import Znode


class Context:
    """Brokers, topics, partitions and their states.

    Attributes:
        epoch: of the controller.
        registry: live brokers, and partitions that have been led.
        topics: by id.
        leaving: live brokers in controlled shutdown.
        waiting: partitions that nobody leads: new or offline; an ordered set.
    """

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.registry = Registry()
        self.topics: dict[TopicId, TopicData] = {}
        self.leaving: set[BrokerId] = set()
        self.waiting: dict[TopicPartition, None] = {}
        self._states: dict[TopicPartition, PartitionState] = {}

    def is_live(self, broker: BrokerId) -> bool:
        """Return whether a broker may get something new to do."""
        return broker in self.registry.brokers and broker not in self.leaving

    def add_topic(self, data: TopicData) -> Iterator[TopicPartition]:
        """A topic has replicas; give its partitions, which are new."""
        self.topics[data.topic.topic_id] = data
        self.registry.topics[data.topic.topic_id] = data.topic
        for number in range(len(data.assignment)):
            key = TopicPartition(data.topic.topic_id, number)
            self._states[key] = PartitionState.NON_EXISTENT
            self.enter(key, PartitionState.NEW)
            yield key

    def remove_topic(self, topic_id: TopicId) -> None:
        """A topic is deleted."""
        data = self.topics.pop(topic_id)
        for number in range(len(data.assignment)):
            key = TopicPartition(topic_id, number)
            self.enter(key, PartitionState.OFFLINE)
            self.enter(key, PartitionState.NON_EXISTENT)
            if key in self.registry.partitions:
                self.registry.replace(data.topic, key, None, Cause.DELETED)
            del self._states[key]
        self.registry.transitions.clear()
        del self.registry.topics[topic_id]

    def replicas(self, key: TopicPartition) -> tuple[BrokerId, ...]:
        """Give the brokers that are to host a partition."""
        return self.topics[key.topic_id].assignment[key.partition]

    def state(self, key: TopicPartition) -> PartitionState:
        """Give a partition's state."""
        return self._states[key]

    def enter(self, key: TopicPartition, following: PartitionState) -> None:
        """A partition takes another state, along the table."""
        self._states[key] = enter(self._states[key], following)
        if following in {PartitionState.NEW, PartitionState.OFFLINE}:
            self.waiting[key] = None
        else:
            self.waiting.pop(key, None)

    def learn(self, key: TopicPartition, znode: Znode) -> None:
        """Remember leader and ISR as ZooKeeper has them."""
        topic = self.registry.topics[key.topic_id]
        self.registry.replace(topic, key, registration_of(self.replicas(key), znode), Cause.UNKNOWN)
        self.registry.transitions.clear()
