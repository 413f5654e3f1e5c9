"""What is true now. Field names are the column names of ``contracts.tables``; times are UTC microseconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from streaming.contracts.identifiers import NO_LEADER, BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.observations import Authority, ConfigOrigin

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition: what the cluster says, what follows for its health, and its totals."""

    cluster_id: ClusterId
    cluster: str
    topic_id: TopicId
    topic: str
    partition: int

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    leader: BrokerId = NO_LEADER
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    leader_recovering: bool = False
    min_isr_configured: int | None = None

    min_isr_effective: int | None = None
    is_offline: bool = False
    is_under_replicated: bool = False
    is_under_min_isr: bool | None = None
    is_at_min_isr: bool | None = None
    is_off_preferred_leader: bool = False
    offline_since: Micros | None = None
    under_replicated_since: Micros | None = None
    under_min_isr_since: Micros | None = None
    offline_seconds: float = 0.0
    under_replicated_seconds: float = 0.0
    under_min_isr_seconds: float = 0.0
    unknown_seconds: float = 0.0

    isr_shrinks: int = 0
    isr_expands: int = 0
    leader_changes: int = 0
    unclean_elections: int = 0
    missed_changes: int = 0
    is_deleted: bool = False
    last_cause: str | None = None
    last_evidence: str | None = None
    last_cause_offset: int | None = None
    changed_at: Micros | None = None
    change_number: int = 0
    metadata_offset: int | None = None
    metadata_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """One broker, as far as the source can see it."""

    cluster_id: ClusterId
    cluster: str
    broker: BrokerId
    broker_epoch: int | None = None
    is_registered: bool = True
    is_fenced: bool | None = None
    is_shutting_down: bool | None = None
    rack: str | None = None
    host: str | None = None
    port: int | None = None
    log_dirs: tuple[str, ...] | None = None
    broker_metadata_offset: int | None = None


class ConfigKey(NamedTuple):
    """Which value of ``min.insync.replicas``: of a topic by name, as one origin tells it."""

    cluster_id: ClusterId
    topic: str
    origin: ConfigOrigin


class MinIsr(NamedTuple):
    """A configured minimum (None: unset) and the metadata offset that set it."""

    min_isr: int | None
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """One cluster."""

    cluster_id: ClusterId
    cluster: str
    authority: Authority = Authority.NONE
    controller: int | None = None
    controller_epoch: int | None = None
    controller_changes: int = 0
    has_baseline: bool = False
    watermark: Micros | None = None
    authority_watermark: Micros | None = None
    sight_until: Micros | None = None

    tombstones_until: Micros | None = None
    expired_isr_shrinks: int = 0
    expired_isr_expands: int = 0
    expired_leader_changes: int = 0
    expired_unclean_elections: int = 0
    expired_missed_changes: int = 0
    expired_offline_seconds: float = 0.0
    expired_under_replicated_seconds: float = 0.0
    expired_under_min_isr_seconds: float = 0.0
    expired_unknown_seconds: float = 0.0

    def has_expired(self, partition: PartitionState) -> bool:
        """Tell whether a partition is a tombstone whose time is over."""
        until, at = self.tombstones_until, partition.changed_at
        return partition.is_deleted and until is not None and at is not None and at <= until

    def seen(self, moment: Micros, *, is_authority: bool) -> ClusterState:
        """Move the watermark forward, and the authority's if it is theirs."""
        newest = max(self.watermark or moment, moment)
        authority = max(self.authority_watermark or moment, moment) if is_authority else self.authority_watermark
        if (newest, authority) == (self.watermark, self.authority_watermark):
            return self  # a snapshot says a million times the same moment
        return replace(self, watermark=newest, authority_watermark=authority)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How far one source of one cluster has been applied."""

    cluster_id: ClusterId
    cluster: str
    source: str
    authority: Authority
    position: int = 0
    sequence: int = 0
    offset: int | None = None
    observed_until: Micros | None = None
    collected_at: Micros | None = None
    duplicates: int = 0
    quarantined: int = 0


TopicKey = tuple[ClusterId, TopicId]
BrokerKey = tuple[ClusterId, BrokerId]
SourceKey = tuple[ClusterId, str]


@dataclass(slots=True)
class ReplicationState:
    """Everything that is true now, by key. The owner applies what a fold touched; a fold itself changes nothing."""

    topics: dict[TopicKey, dict[int, PartitionState]] = field(default_factory=dict)
    topic_ids: dict[tuple[ClusterId, str], TopicId] = field(default_factory=dict)
    brokers: dict[BrokerKey, BrokerState] = field(default_factory=dict)
    clusters: dict[ClusterId, ClusterState] = field(default_factory=dict)
    sources: dict[SourceKey, SourceState] = field(default_factory=dict)
    min_isr: dict[ConfigKey, MinIsr] = field(default_factory=dict)

    def apply(self, touched: ReplicationState) -> list[PartitionState]:
        """Make true what a fold has touched; give the tombstones that it let go."""
        for key, partitions in touched.topics.items():
            self.topics.setdefault(key, {}).update(partitions)
        self.topic_ids.update(touched.topic_ids)
        self.brokers.update(touched.brokers)
        expired = [it for cluster in touched.clusters.values() for it in self.put_cluster(cluster)]
        self.sources.update(touched.sources)
        self.min_isr.update(touched.min_isr)
        return expired

    def put_cluster(self, cluster: ClusterState) -> list[PartitionState]:
        """Take a cluster's state over; where the time of tombstones moved on, let them go and give them."""
        before = self.clusters.get(cluster.cluster_id)
        self.clusters[cluster.cluster_id] = cluster
        if cluster.tombstones_until is None or (before and before.tombstones_until == cluster.tombstones_until):
            return []
        expired = [it for it in self.partitions() if it.cluster_id == cluster.cluster_id and cluster.has_expired(it)]
        for partition in expired:
            self._forget(partition)
        return expired

    def put_partition(self, partition: PartitionState) -> None:
        """Take a partition's state over, as a table tells it; a tombstone whose time is over is not remembered."""
        cluster = self.clusters.get(partition.cluster_id)
        self.topics.setdefault((partition.cluster_id, partition.topic_id), {})[partition.partition] = partition
        if not partition.is_deleted:
            self.topic_ids[partition.cluster_id, partition.topic] = partition.topic_id
        elif cluster is not None and cluster.has_expired(partition):
            self._forget(partition)

    def _forget(self, partition: PartitionState) -> None:
        key = (partition.cluster_id, partition.topic_id)
        del self.topics[key][partition.partition]
        if not self.topics[key]:
            del self.topics[key]
            if self.topic_ids.get((partition.cluster_id, partition.topic)) == partition.topic_id:
                del self.topic_ids[partition.cluster_id, partition.topic]

    def watch(self, source: SourceState) -> None:
        """Move the watermarks of a source's cluster up to what that source has seen."""
        seen = source.observed_until
        if seen is None:
            return
        known = self.clusters.get(source.cluster_id)
        cluster = known or ClusterState(cluster_id=source.cluster_id, cluster=source.cluster)
        is_authority = source.authority is cluster.authority and source.authority is not Authority.NONE
        self.clusters[source.cluster_id] = cluster.seen(seen, is_authority=is_authority)

    def partitions(self) -> Iterator[PartitionState]:
        """Iterate over every partition, tombstones included."""
        for partitions in self.topics.values():
            yield from partitions.values()
