"""The next snapshot, made from the last: a draft per cluster that is touched. Knows values, no files.

A draft is what ``streaming.delta.state`` reads a state into.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from exporters.read_model.cluster_draft import ClusterDraft
from exporters.read_model.snapshot import ClusterIncidents, ClusterSnapshot, ReplicationSnapshot
from streaming.contracts.state import ClusterState, PartitionState
from streaming.delta.incidents.closed import expired_counts
from streaming.delta.state import states_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from deltalake import DeltaTable

    from exporters.read_model.snapshot import EventRow
    from streaming.contracts.identifiers import BrokerId, ClusterId
    from streaming.contracts.state import BrokerState, SourceState
    from streaming.delta.incidents.closed import IncidentCounts
    from streaming.delta.state import Configs


@dataclass(slots=True)
class SnapshotDraft:
    """The next snapshot."""

    last: ReplicationSnapshot
    drafts: dict[str, ClusterDraft] = field(default_factory=dict)
    events: list[EventRow] = field(default_factory=list)
    incidents: Mapping[str, ClusterIncidents] | None = None
    expired_incidents: IncidentCounts = field(default_factory=Counter)
    counted_since: int | None = None

    def __post_init__(self) -> None:
        """Keep the incidents until others are put, and since when is counted."""
        self.incidents = self.last.incidents
        self.counted_since = self.last.counted_since

    def cluster(self, cluster_id: str, name: str) -> ClusterDraft:
        """Open the draft of one cluster."""
        draft = self.drafts.get(cluster_id)
        if draft is None:
            last = self.last.clusters.get(cluster_id)
            empty = ClusterState(cluster_id, name)  # type: ignore[arg-type]  # an id of a table is an id
            draft = self.drafts[cluster_id] = ClusterDraft(last or ClusterSnapshot(cluster=empty))
        return draft

    def put_cluster(self, cluster: ClusterState, _configs: Configs) -> None:
        """Take over a cluster."""
        self.cluster(cluster.cluster_id, cluster.cluster).put_cluster(cluster)

    def put_broker(self, broker: BrokerState) -> None:
        """Take over a broker."""
        self.cluster(broker.cluster_id, broker.cluster).put_broker(broker)

    def put_partitions(self, rows: pa.Table) -> None:
        """Take over the rows of ``partition_state``."""
        for partition in states_of(PartitionState, rows):
            self.put_partition(partition)

    def put_partition(self, partition: PartitionState) -> None:
        """Take over a partition; a tombstone, too."""
        self.cluster(partition.cluster_id, partition.cluster).put_partition(partition)

    def put_source(self, source: SourceState) -> None:
        """Take over how far a source of replication was applied."""
        self.cluster(source.cluster_id, source.cluster).put_source(source)

    def add_isr_removals(self, cluster_id: ClusterId, cluster: str, broker: BrokerId, cause: str, count: int) -> None:
        """Count removals of a broker from ISRs."""
        self.cluster(cluster_id, cluster).add_isr_removals(broker, cause, count)

    def count_expired_incidents(self, table: DeltaTable) -> None:
        """Take over how many closed incidents of each cluster the table does not hold any more."""
        self.expired_incidents = expired_counts(table, {*self.last.clusters, *self.drafts})

    def put_incidents(self, incidents: Mapping[str, ClusterIncidents] | None) -> None:
        """Take over those of every cluster; a cluster that is not named has none, None is unknown of all."""
        self.incidents = incidents
        list(self.every_cluster())

    def every_cluster(self) -> Iterator[ClusterDraft]:
        """Open the draft of every cluster, those of the last snapshot included."""
        for cluster_id, cluster in self.last.clusters.items():
            self.cluster(cluster_id, cluster.name)
        yield from self.drafts.values()

    def finish(self, version: int, read_at: int, keep_events: int) -> ReplicationSnapshot:
        """Return the next snapshot; the draft must not be used after."""
        finished = {cluster_id: self._finished(cluster_id, read_at) for cluster_id in self.drafts}
        return ReplicationSnapshot(
            clusters={**self.last.clusters, **finished} if finished else self.last.clusters,
            version=version,
            read_at=read_at,
            recent_events=(*self.last.recent_events, *self.events)[-keep_events:] if self.events
            else self.last.recent_events,
            incidents=self.incidents,
            counted_since=self.counted_since,
        )  # fmt: skip

    def _finished(self, cluster_id: str, read_at: int) -> ClusterSnapshot:
        incidents = None if self.incidents is None else self.incidents.get(cluster_id, ClusterIncidents())
        finished, last = self.drafts[cluster_id].finish(), self.last.clusters.get(cluster_id)
        is_same = last is not None and last.watermark == finished.watermark
        watermark_read_at = last.watermark_read_at if last is not None and is_same else read_at
        return replace(finished, incidents=incidents, watermark_read_at=watermark_read_at)
