"""Everything that is true now, by key: the container that the fold reads and its owner updates."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Protocol

from streaming.changes.listed import ListedPartitions
from streaming.contracts.identifiers import BrokerId, ClusterId, TopicId
from streaming.contracts.observations import DISKLESS, MIN_ISR, ConfigOrigin, SourceKind
from streaming.contracts.state import BrokerState, ClusterState, ConfigKey, ConfigValue, PartitionState, SourceState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from streaming.contracts.identifiers import Offset

TopicKey = tuple[ClusterId, TopicId]
BrokerKey = tuple[ClusterId, BrokerId]
SourceKey = tuple[ClusterId, str]


class Stored(Protocol):
    """Topics of which nothing has asked for a partition since the start. None of them has a tombstone."""

    def __contains__(self, key: object) -> bool:
        """Return whether a topic is still here."""

    def __iter__(self) -> Iterator[TopicKey]:
        """Iterate over the topics that are still here."""

    def __len__(self) -> int:
        """Return how many topics are still here."""

    def beyond(self, cluster_id: ClusterId, counts: Mapping[TopicId, int]) -> Iterable[TopicKey]:
        """Find the topics of a cluster that have more partitions than these; those without a count have none."""

    def take(self, keys: Collection[TopicKey]) -> Iterable[PartitionState]:
        """Remove topics and return their partitions; those that are not here are passed over."""


@dataclass(slots=True)
class ReplicationState:
    """Everything that is true now, by key. The owner applies what a fold touched; a fold itself changes nothing.

    Attributes:
        topics: the partitions of each topic, but for the topics in ``stored``; see :meth:`topic`.
        stored: topics that are not decoded yet; a topic moves from here to ``topics`` when something asks for it.
    """

    topics: dict[TopicKey, Mapping[int, PartitionState]] = field(default_factory=dict)
    topic_ids: dict[tuple[ClusterId, str], TopicId] = field(default_factory=dict)
    brokers: dict[BrokerKey, BrokerState] = field(default_factory=dict)
    clusters: dict[ClusterId, ClusterState] = field(default_factory=dict)
    sources: dict[SourceKey, SourceState] = field(default_factory=dict)
    configs: dict[ConfigKey, ConfigValue] = field(default_factory=dict)
    stored: Stored | None = None

    def topic(self, key: TopicKey) -> Mapping[int, PartitionState]:
        """Look the partitions of one topic up, tombstones included."""
        if self.stored is not None and key in self.stored:
            self.load((key,))
        return self.topics.get(key, {})

    def mutable_topic(self, key: TopicKey) -> dict[int, PartitionState]:
        """Return the partitions of one topic of ``topics`` to be changed; it is added if it is not there."""
        partitions = self.topics.get(key)
        if not isinstance(partitions, dict):
            partitions = self.topics[key] = dict(partitions or {})
        return partitions

    def topics_with_tombstones(self) -> Iterator[TopicKey]:
        """Iterate over the topics that may have a tombstone: those in ``stored``, and listed ones, have none."""
        return (key for key, partitions in self.topics.items() if not isinstance(partitions, ListedPartitions))

    def topic_keys(self) -> Iterator[TopicKey]:
        """Iterate over the topics of all clusters."""
        yield from self.topics
        yield from self.stored or ()

    def topics_beyond(self, cluster_id: ClusterId, counts: Mapping[TopicId, int]) -> Iterator[TopicKey]:
        """Find the topics of a cluster that have more partitions than these; those without a count have none."""
        for key, partitions in self.topics.items():
            if key[0] == cluster_id and max(partitions) >= counts.get(key[1], 0):
                yield key
        if self.stored is not None:
            yield from self.stored.beyond(cluster_id, counts)

    def load(self, keys: Collection[TopicKey]) -> None:
        """Decode topics at once that will be asked for; one by one costs many times as much."""
        if self.stored is not None:
            for partition in self.stored.take(keys):
                self.mutable_topic((partition.cluster_id, partition.topic_id))[partition.partition] = partition
            self.stored = self.stored if len(self.stored) else None

    def apply(self, touched: ReplicationState) -> list[PartitionState]:
        """Apply what a fold has touched; return the tombstones that it dropped."""
        self.load(touched.topics)
        for key, partitions in touched.topics.items():
            if isinstance(partitions, ListedPartitions) and key not in self.topics:
                self.topics[key] = partitions
            else:
                self.mutable_topic(key).update(partitions)
        self.topic_ids.update(touched.topic_ids)
        self.brokers.update(touched.brokers)
        expired = [tombstone for cluster in touched.clusters.values() for tombstone in self._put_cluster(cluster)]
        self.sources.update(touched.sources)
        self.configs.update(touched.configs)
        return expired

    def _put_cluster(self, cluster: ClusterState) -> list[PartitionState]:
        """Set a cluster; drop and return the tombstones that have expired with it."""
        before = self.clusters.get(cluster.cluster_id)
        self.clusters[cluster.cluster_id] = cluster
        if cluster.tombstones_until is None or (before and before.tombstones_until == cluster.tombstones_until):
            return []
        keys = [key for key in self.topics_with_tombstones() if key[0] == cluster.cluster_id]
        expired = [each for key in keys for each in self.topics[key].values() if cluster.has_expired(each)]
        for partition in expired:
            self._forget(partition)
        return expired

    def put_cluster(self, cluster: ClusterState, configs: Iterable[tuple[ConfigKey, ConfigValue]] = ()) -> None:
        """Set a cluster, and the configured values that its row carries.

        Its watermarks stay where they are newer: what a source has reported since may have been read before this row.
        """
        self._put_cluster(cluster.not_before(self.clusters.get(cluster.cluster_id)))
        for source in self.sources.values():  # the row may be the first that says which of them is the primary one
            if source.cluster_id == cluster.cluster_id:
                self.watch(source)
        self.configs.update(configs)

    def put_broker(self, broker: BrokerState) -> None:
        """Set a broker."""
        self.brokers[broker.cluster_id, broker.broker] = broker

    def put_source(self, source: SourceState) -> None:
        """Set how far a source was applied; this may advance the watermarks of its cluster."""
        self.sources[source.cluster_id, source.source] = source
        self.watch(source)

    def put_partition(self, partition: PartitionState) -> None:
        """Set a partition as a table has it; a tombstone that its cluster has dropped is not kept."""
        cluster = self.clusters.get(partition.cluster_id)
        self.load(((partition.cluster_id, partition.topic_id),))
        self.mutable_topic((partition.cluster_id, partition.topic_id))[partition.partition] = partition
        if not partition.is_deleted:
            self.topic_ids[partition.cluster_id, partition.topic] = partition.topic_id
        elif cluster is not None and cluster.has_expired(partition):
            self._forget(partition)

    def _forget(self, partition: PartitionState) -> None:
        key = (partition.cluster_id, partition.topic_id)
        del self.mutable_topic(key)[partition.partition]
        if not self.topics[key]:
            del self.topics[key]
            name = partition.cluster_id, partition.topic
            if self.topic_ids.get(name) in (None, partition.topic_id):  # no other topic has its name now
                self.topic_ids.pop(name, None)
                for origin, configuration in product(ConfigOrigin, (MIN_ISR, DISKLESS)):
                    self._forget_config(ConfigKey(*name, origin, configuration), partition.metadata_offset)

    def _forget_config(self, key: ConfigKey, deleted_at: Offset | None) -> None:
        """Forget a configured value, unless the log has set it after the topic was deleted: for the next one."""
        config = self.configs.get(key)
        offset = None if config is None else config.offset
        if offset is None or deleted_at is None or offset <= deleted_at:
            self.configs.pop(key, None)

    def watch(self, source: SourceState) -> None:
        """Move the watermarks of a source's cluster up to what that source has seen."""
        seen = source.observed_until
        if seen is None:
            return
        cluster = self.clusters.get(source.cluster_id) or ClusterState(
            cluster_id=source.cluster_id, cluster=source.cluster
        )
        is_primary = source.authority is cluster.authority and source.authority is not SourceKind.NONE
        self.clusters[source.cluster_id] = cluster.with_watermark(seen, is_primary=is_primary)

    def partitions(self) -> Iterator[PartitionState]:
        """Iterate over every partition, tombstones included."""
        self.load(tuple(self.stored or ()))
        for partitions in self.topics.values():
            yield from partitions.values()
