"""Rows of ``partition_changes``, applied to a draft: state, totals, departures, progress, events.

Field names of the row classes are column names of ``streaming.contracts.tables``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc

from exporters.columns import columns_of, rows_as, struct_columns
from exporters.draft import ClusterDraft
from exporters.snapshot import (
    NO_TABLE,
    Broker,
    Cluster,
    ClusterSnapshot,
    Event,
    Partition,
    ReplicationSnapshot,
    SourceProgress,
    Totals,
)
from streaming.contracts.events import Cause
from streaming.contracts.observations import Channel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

SUBJECT_PARTITION = "partition"
SUBJECT_BROKER = "broker"
SUBJECT_CLUSTER = "cluster"
SUBJECT_SOURCE = "source"


class ChangeRow(NamedTuple):
    """One row: what it is about, when, why."""

    cluster_id: str
    cluster: str
    subject: str
    is_baseline: bool
    topic_id: str
    topic: str
    partition: int
    broker: int
    occurred_not_before: int
    occurred_not_after: int
    collected_at: int
    source: str
    authority: str | None
    cause: str | None
    evidence: str | None
    candidates: list[str] | None
    left_isr: tuple[int, ...] | None
    joined_isr: tuple[int, ...] | None
    events: list[dict[str, Any]] | None


class Before(NamedTuple):
    """What is read of a partition's state before a change."""

    leader: int | None
    isr: tuple[int, ...] | None
    isr_shrinks: int | None
    isr_expands: int | None
    leader_changes: int | None
    unclean_elections: int | None
    missed_changes: int | None


class Lacking(NamedTuple):
    """Which loaded parts do not have a version yet, so that its rows must be applied to them."""

    partitions: bool
    brokers: bool
    clusters: bool
    sources: bool


@dataclass(frozen=True, slots=True)
class AsOf:
    """The version of ``partition_changes`` up to which each part of a snapshot was loaded."""

    partitions: int = NO_TABLE
    brokers: int = NO_TABLE
    clusters: int = NO_TABLE
    sources: int = NO_TABLE

    def oldest(self) -> int:
        """Give the version after which the changes must be read."""
        return min(self.partitions, self.brokers, self.clusters, self.sources)

    def lacking(self, version: int) -> Lacking:
        """Tell which parts lack a version."""
        parts = (self.partitions, self.brokers, self.clusters, self.sources)
        return Lacking(*(version > part for part in parts))


@dataclass(slots=True)
class SnapshotDraft:
    """The next snapshot: a draft of each cluster that is touched."""

    last: ReplicationSnapshot
    drafts: dict[str, ClusterDraft] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def cluster(self, cluster_id: str, name: str) -> ClusterDraft:
        """Open the draft of one cluster."""
        draft = self.drafts.get(cluster_id)
        if draft is None:
            last = self.last.clusters.get(cluster_id) or ClusterSnapshot(cluster=Cluster(cluster_id, name))
            draft = self.drafts[cluster_id] = ClusterDraft(last)
        return draft

    def finish(self, version: int, read_at: int, keep_events: int) -> ReplicationSnapshot:
        """Give the next snapshot; the draft must not be used after."""
        finished = {cluster_id: draft.finish() for cluster_id, draft in self.drafts.items()}
        return ReplicationSnapshot(
            clusters={**self.last.clusters, **finished} if finished else self.last.clusters,
            version=version,
            read_at=read_at,
            recent_events=(*self.last.recent_events, *self.events)[-keep_events:] if self.events
            else self.last.recent_events,
        )  # fmt: skip


def apply_changes(draft: SnapshotDraft, version: int, rows: pa.Table, as_of: AsOf) -> None:
    """Apply the rows that one version added, as far as the loaded tables do not have them yet; keep their events."""
    lacking = as_of.lacking(version)
    if not any(lacking):
        rows = rows.filter(pc.greater(pc.list_value_length(rows.column("events")), 0))
    changes = rows_as(ChangeRow, columns_of(rows, ChangeRow._fields), rows.num_rows)
    parts = _Parts(rows)
    for index, change in enumerate(changes):
        cluster = draft.cluster(change.cluster_id, change.cluster)
        if change.subject == SUBJECT_PARTITION:
            _apply_partition(cluster, change, parts.before[index], parts.partitions[index], lacking)
        elif change.subject == SUBJECT_BROKER and lacking.brokers:
            cluster.put_broker(parts.brokers[index])
        elif change.subject == SUBJECT_CLUSTER and lacking.clusters:
            cluster.put_cluster(parts.clusters[index])
        elif change.subject == SUBJECT_SOURCE and lacking.sources:
            cluster.put_source(parts.sources[index])
        if change.events:
            draft.events.extend(_events(change, parts.before[index], parts.partitions[index]))


class _Parts:
    """The structs of the rows, each as a list with one entry a row."""

    def __init__(self, rows: pa.Table) -> None:
        count = rows.num_rows
        shared = columns_of(rows, ("cluster_id", "cluster", "topic_id", "topic", "partition", "broker"))
        shared |= columns_of(rows, ("source", "authority"))
        self.before = rows_as(Before, struct_columns(rows, "before", Before._fields), count)
        self.partitions = rows_as(Partition, {**struct_columns(rows, "after", Partition._fields), **shared}, count)
        self.brokers = rows_as(Broker, {**struct_columns(rows, "broker_after", Broker._fields), **shared}, count)
        named = {name: shared[name] for name in ("cluster_id", "cluster")}
        self.clusters = rows_as(Cluster, {**struct_columns(rows, "cluster_after", Cluster._fields), **named}, count)
        channel = {"channel": [Channel.REPLICATION.value] * count}
        told = struct_columns(rows, "source_after", SourceProgress._fields)
        self.sources = rows_as(SourceProgress, {**told, **shared, **channel}, count)


def _apply_partition(
    cluster: ClusterDraft, change: ChangeRow, before: Before, after: Partition, lacking: Lacking
) -> None:
    if lacking.partitions:
        cluster.put_partition(after)
    if lacking.clusters:
        cluster.add_totals(_totals(before), _totals(after))
    if lacking.brokers:
        for broker in change.left_isr or ():
            cluster.add_departure(broker, change.cause or Cause.UNKNOWN.value)


def _totals(row: Before | Partition) -> Totals:
    return Totals(*(getattr(row, name) or 0 for name in Totals._fields))


def _events(change: ChangeRow, before: Before, after: Partition) -> Iterator[Event]:
    is_partition = change.subject == SUBJECT_PARTITION
    shared = {name: value for name, value in change._asdict().items() if name in Event._fields}
    for event in change.events or ():
        yield Event(
            **{
                **shared,
                **event,
                "candidates": tuple(change.candidates or ()),
                "left_isr": change.left_isr or (),
                "joined_isr": change.joined_isr or (),
                "leader_before": before.leader,
                "leader_after": after.leader if is_partition else None,
                "isr_before": before.isr,
                "isr_after": after.isr if is_partition else None,
            }
        )
