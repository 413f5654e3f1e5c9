"""What each broker of the model has read of the metadata log: its own image, which may be old.

The model's brokers keep what they need to lead and to follow. What one answers about all partitions is put together
here, out of the batches that the controller committed up to the offset that this broker has read to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
from streaming.model.cluster.cluster import Cluster
from streaming.model.controller.metadata_writer import Commit
from streaming.model.messages.registrations import BrokerRegistration, PartitionRegistration


@dataclass(slots=True)
class Image:
    """Metadata as one broker knows them.

    Attributes:
        partitions: by name of the topic and number.
        topic_ids: by name.
        brokers: as registered; the fenced ones, too.
    """

    partitions: dict[str, dict[int, PartitionRegistration]] = field(default_factory=dict)
    topic_ids: dict[str, TopicId] = field(default_factory=dict)
    brokers: Mapping[BrokerId, BrokerRegistration] = field(default_factory=dict)
    _applied: int = 0
    _names: dict[TopicId, str] = field(default_factory=dict)

    @property
    def unfenced(self) -> frozenset[BrokerId]:
        """Brokers that it lists as alive."""
        return frozenset(broker for broker, registration in self.brokers.items() if not registration.fenced)

    @property
    def fenced(self) -> frozenset[BrokerId]:
        """Brokers that are registered, and fenced."""
        return frozenset(broker for broker, registration in self.brokers.items() if registration.fenced)

    def read(self, commits: Sequence[Commit], offset: int) -> None:
        """Apply the batches up to an offset. An image is read by one broker and never goes back."""
        while self._applied < len(commits) and commits[self._applied].batch.base_offset <= offset:
            for step in commits[self._applied].transitions:
                if step.after is None:
                    self._drop(step.topic_partition, step.topic.topic)
                else:
                    self._put(step.topic_partition, step.topic.topic, step.after)
            self._applied += 1

    def _put(self, key: TopicPartition, topic: str, state: PartitionRegistration) -> None:
        if self.topic_ids.get(topic) != key.topic_id:
            self.topic_ids[topic] = key.topic_id
            self.partitions[topic] = {}
        self.partitions[topic][key.partition] = state

    def _drop(self, key: TopicPartition, topic: str) -> None:
        if self.topic_ids.get(topic) == key.topic_id:
            self.partitions.get(topic, {}).pop(key.partition, None)
            if not self.partitions.get(topic):
                self.partitions.pop(topic, None)
                del self.topic_ids[topic]


class Images:
    """The images of all brokers of a cluster.

    Args:
        cluster: the model.
        commits: every batch since the model began; it grows while the model runs.
    """

    def __init__(self, cluster: Cluster, commits: Sequence[Commit]) -> None:
        self._cluster = cluster
        self._commits = commits
        self._images: dict[BrokerId, Image] = {}

    def of(self, broker: BrokerId) -> Image:
        """Return what a running broker knows now."""
        process = self._cluster.brokers[broker]
        image = self._images.setdefault(broker, Image())
        image.read(self._commits, process.lifecycle.metadata_offset)
        image.brokers = process.brokers
        return image
