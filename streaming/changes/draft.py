"""A fold in progress: the state that it touched, over the state before, which it must not change."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from streaming.changes.state import ReplicationState
from streaming.changes.topic_configs import topic_config
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import ClusterState, SourceState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streaming.changes.change import Change
    from streaming.changes.listed import ListedPartitions
    from streaming.changes.topic_configs import TopicConfig
    from streaming.contracts.blocks import PartitionsObserved
    from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import BrokerState, ConfigKey, ConfigValue, PartitionState


class Draft:
    """Collects what a fold changes; what it has not touched is read from the state before."""

    def __init__(self, before: ReplicationState) -> None:
        self._before = before
        self.touched = ReplicationState()
        self.changes: list[Change] = []
        self.dropped: list[Observation] = []
        self.first_of_shape: dict[tuple[Any, ...], PartitionState] = {}
        self.primary_before = SourceKind.NONE  # before the observation that is being applied
        self._topic_configs: dict[tuple[ClusterId, str], TopicConfig] = {}
        self.next_lapse: dict[ClusterId, Micros | None] = {}

    def partition(self, cluster_id: ClusterId, topic_id: TopicId, number: int) -> PartitionState | None:
        """Look one partition up."""
        key = (cluster_id, topic_id)
        touched = self.touched.topics.get(key, {}).get(number)
        return touched or self._before.topic(key).get(number)

    def topic(self, cluster_id: ClusterId, topic_id: TopicId) -> Mapping[int, PartitionState]:
        """Look the partitions of one topic up, tombstones included."""
        key = (cluster_id, topic_id)
        before, touched = self._before.topic(key), self.touched.topics.get(key)
        return {**before, **touched} if before and touched else touched or before

    def partitions_of(self, cluster_id: ClusterId, topic_id: TopicId) -> list[PartitionState]:
        """List the partitions of one topic, tombstones included, by number."""
        merged = self.topic(cluster_id, topic_id)
        return [merged[number] for number in sorted(merged)]

    def topic_ids(self, cluster_id: ClusterId) -> Iterator[TopicId]:
        """Iterate over the topics of one cluster, in a stable order. Whoever does looks at all of their partitions."""
        keys = {key for key in (*self._before.topic_keys(), *self.touched.topics) if key[0] == cluster_id}
        self._before.load(keys)
        yield from sorted(topic_id for _, topic_id in keys)

    def topics_beyond(self, cluster_id: ClusterId, counts: Mapping[TopicId, int]) -> list[TopicId]:
        """List the topics of a cluster that have more partitions than these, tombstones included, in a stable order."""
        keys = {*self._before.topics_beyond(cluster_id, counts), *self.touched.topics_beyond(cluster_id, counts)}
        self._before.load(keys)
        return sorted(topic_id for _, topic_id in keys)

    def topic_named(self, cluster_id: ClusterId, topic: str) -> list[TopicId]:
        """Look a topic up by its name: one id, or none."""
        key = (cluster_id, topic)
        topic_id = self.touched.topic_ids.get(key) or self._before.topic_ids.get(key)
        return [] if topic_id is None else [topic_id]

    def broker(self, cluster_id: ClusterId, broker: BrokerId) -> BrokerState | None:
        """Look one broker up."""
        key = (cluster_id, broker)
        return self.touched.brokers.get(key) or self._before.brokers.get(key)

    def brokers_of(self, cluster_id: ClusterId) -> list[BrokerState]:
        """List the brokers of one cluster, by id."""
        merged = {**self._before.brokers, **self.touched.brokers}
        return [merged[key] for key in sorted(merged) if key[0] == cluster_id]

    def cluster(self, observed: Observation) -> ClusterState:
        """Look the observation's cluster up; an unknown one is new."""
        cluster = self.touched.clusters.get(observed.cluster_id) or self._before.clusters.get(observed.cluster_id)
        return cluster or ClusterState(cluster_id=observed.cluster_id, cluster=observed.cluster)

    def source(self, observed: Observation) -> SourceState:
        """Look the observation's source up; an unknown one is new."""
        key = (observed.cluster_id, observed.source)
        source = self.touched.sources.get(key) or self._before.sources.get(key)
        return source or SourceState(
            cluster_id=observed.cluster_id,
            cluster=observed.cluster,
            source=observed.source,
            authority=observed.authority,
        )

    def other_sources(self, observed: Observation) -> list[SourceState]:
        """List the other sources of the observation's cluster, by name; no offset of a log that was replaced."""
        merged = {**self._before.sources, **self.touched.sources}
        ours, since = (observed.cluster_id, observed.source), self.cluster(observed).metadata_log_since
        others = [merged[key] for key in sorted(merged) if key[0] == observed.cluster_id and key != ours]
        return [
            other._replace(offset=None) if (other.observed_until or 0) < (since or 0) else other for other in others
        ]

    def config(self, key: ConfigKey) -> ConfigValue | None:
        """Look one configured value up."""
        return self.touched.configs.get(key) or self._before.configs.get(key)

    def topic_config(self, cluster_id: ClusterId, topic: str) -> TopicConfig:
        """Return what is configured for a topic; each of its partitions asks for it with each change."""
        config = self._topic_configs.get((cluster_id, topic))
        if config is None:
            config = self._topic_configs[cluster_id, topic] = topic_config(self.config, cluster_id, topic)
        return config

    def put_configs(self, configs: Mapping[ConfigKey, ConfigValue]) -> None:
        """Remember configured values."""
        self.touched.configs.update(configs)
        self._topic_configs.clear()

    def config_keys(self) -> list[ConfigKey]:
        """List the configured values of all clusters, in a stable order."""
        return sorted({**self._before.configs, **self.touched.configs})

    def put_partition(self, state: PartitionState) -> None:
        """Remember the new state of a partition."""
        self.touched.mutable_topic((state.cluster_id, state.topic_id))[state.partition] = state
        if not state.is_deleted:
            self.touched.topic_ids[state.cluster_id, state.topic] = state.topic_id

    def put_listed(self, block: PartitionsObserved, partitions: ListedPartitions) -> None:
        """Remember the partitions of a topic of which nothing was known before."""
        self.touched.topics[block.cluster_id, block.topic_id] = partitions
        self.touched.topic_ids[block.cluster_id, block.topic] = block.topic_id

    def put_broker(self, state: BrokerState) -> None:
        """Remember the new state of a broker."""
        self.touched.brokers[state.cluster_id, state.broker] = state

    def put_cluster(self, state: ClusterState) -> None:
        """Remember the new state of a cluster."""
        self.touched.clusters[state.cluster_id] = state

    def drop(self, observed: Observation) -> None:
        """Record an observation that is equal, older or not of the primary source, unless a full report repeats it."""
        if not getattr(observed, "in_snapshot", False):
            self.dropped.append(observed)

    def duplicates(self) -> Counter[tuple[ClusterId, str]]:
        """Count what was dropped of each source."""
        return Counter((observed.cluster_id, observed.source) for observed in self.dropped)
