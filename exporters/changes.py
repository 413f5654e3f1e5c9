"""Rows of ``partition_changes``, applied to a draft: state, totals, departures, progress, events.

Field names of the row classes are column names of ``streaming.contracts.tables``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pyarrow.compute as pc

from exporters.columns import columns_of, fields_of, rows_as, struct_columns
from exporters.draft import ClusterDraft
from exporters.incidents import NO_INCIDENTS
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
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from exporters.incidents import Incidents

R = TypeVar("R", bound=tuple[Any, ...])

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
    incidents: Mapping[str, Incidents] | None = None

    def __post_init__(self) -> None:
        """Keep the incidents until others are put."""
        self.incidents = self.last.incidents

    def cluster(self, cluster_id: str, name: str) -> ClusterDraft:
        """Open the draft of one cluster."""
        draft = self.drafts.get(cluster_id)
        if draft is None:
            last = self.last.clusters.get(cluster_id) or ClusterSnapshot(cluster=Cluster(cluster_id, name))
            draft = self.drafts[cluster_id] = ClusterDraft(last)
        return draft

    def put_incidents(self, incidents: Mapping[str, Incidents]) -> None:
        """Take over those of every cluster; a cluster that is not named has none."""
        self.incidents = incidents
        for cluster_id, known in self.last.clusters.items():
            self.cluster(cluster_id, known.name)

    def finish(self, version: int, read_at: int, keep_events: int) -> ReplicationSnapshot:
        """Give the next snapshot; the draft must not be used after."""
        finished = {cluster_id: self._finished(cluster_id) for cluster_id in self.drafts}
        return ReplicationSnapshot(
            clusters={**self.last.clusters, **finished} if finished else self.last.clusters,
            version=version,
            read_at=read_at,
            recent_events=(*self.last.recent_events, *self.events)[-keep_events:] if self.events
            else self.last.recent_events,
            incidents=self.incidents,
        )  # fmt: skip

    def _finished(self, cluster_id: str) -> ClusterSnapshot:
        told = None if self.incidents is None else self.incidents.get(cluster_id, NO_INCIDENTS)
        return replace(self.drafts[cluster_id].finish(), incidents=told)


def apply_changes(draft: SnapshotDraft, version: int, rows: pa.Table, as_of: AsOf) -> None:
    """Apply the rows that one version added, as far as the loaded tables do not have them yet; keep their events."""
    lacking = as_of.lacking(version)
    if not any(lacking):
        rows = rows.filter(pc.greater(pc.list_value_length(rows.column("events")), 0))
    subjects = rows.column("subject")
    present = set(pc.unique(subjects).to_pylist())
    events: list[Event] = []
    for subject, apply in _APPLY.items():
        if subject in present:
            about = rows if len(present) == 1 else rows.filter(pc.equal(subjects, subject))
            events += apply(draft, _Rows(about), lacking)
    draft.events += sorted(events, key=lambda event: event.occurred_not_after)


class _Rows:
    """Rows about one subject."""

    def __init__(self, rows: pa.Table) -> None:
        self._table = rows
        self._shared = columns_of(rows, ChangeRow._fields)
        self.changes = rows_as(ChangeRow, self._shared, rows.num_rows)

    def part(self, cls: type[R], column: str, **constants: str) -> list[R]:
        """Read a struct column, with the identity that its row gives."""
        count = self._table.num_rows
        constant = {name: [value] * count for name, value in constants.items()}
        told = struct_columns(self._table, column, fields_of(cls))
        return rows_as(cls, {**self._shared, **told, **constant}, count)


def _apply_partitions(draft: SnapshotDraft, rows: _Rows, lacking: Lacking) -> list[Event]:
    earlier, afters = rows.part(Before, "before"), rows.part(Partition, "after")
    events: list[Event] = []
    for change, before, after in zip(rows.changes, earlier, afters, strict=True):
        cluster = draft.cluster(change.cluster_id, change.cluster)
        if lacking.partitions:
            cluster.put_partition(after)
        if lacking.clusters:
            cluster.add_totals(_totals(before), _totals(after))
        if lacking.brokers:
            for broker in change.left_isr or ():
                cluster.add_departure(broker, change.cause or Cause.UNKNOWN.value)
        if change.events:
            moved = {"leader_before": before.leader, "isr_before": before.isr}
            events += _events(change, **moved, leader_after=after.leader, isr_after=after.isr)
    return events


def _apply_brokers(draft: SnapshotDraft, rows: _Rows, lacking: Lacking) -> list[Event]:
    if lacking.brokers:
        for change, broker in zip(rows.changes, rows.part(Broker, "broker_after"), strict=True):
            draft.cluster(change.cluster_id, change.cluster).put_broker(broker)
    return [event for change in rows.changes for event in _events(change)]


def _apply_clusters(draft: SnapshotDraft, rows: _Rows, lacking: Lacking) -> list[Event]:
    if lacking.clusters:
        for change, cluster in zip(rows.changes, rows.part(Cluster, "cluster_after"), strict=True):
            draft.cluster(change.cluster_id, change.cluster).put_cluster(cluster)
    return [event for change in rows.changes for event in _events(change)]


def _apply_sources(draft: SnapshotDraft, rows: _Rows, lacking: Lacking) -> list[Event]:
    if lacking.sources:
        sources = rows.part(SourceProgress, "source_after", channel=Channel.REPLICATION.value)
        for change, source in zip(rows.changes, sources, strict=True):
            draft.cluster(change.cluster_id, change.cluster).put_source(source)
    return [event for change in rows.changes for event in _events(change)]


# In the order of cause and effect: the moments of one version are told so, too.
_APPLY: Final = {
    SUBJECT_CLUSTER: _apply_clusters,
    SUBJECT_BROKER: _apply_brokers,
    SUBJECT_PARTITION: _apply_partitions,
    SUBJECT_SOURCE: _apply_sources,
}


def _totals(row: Before | Partition) -> Totals:
    return Totals(*(getattr(row, name) or 0 for name in Totals._fields))


def _events(change: ChangeRow, **moved: Any) -> Iterator[Event]:  # noqa: ANN401 - columns of a partition, if it is one
    if not change.events:
        return
    shared = {name: value for name, value in change._asdict().items() if name in Event._fields}
    nothing = dict.fromkeys(("leader_before", "leader_after", "isr_before", "isr_after"))
    lists = {
        "candidates": tuple(change.candidates or ()),
        "left_isr": change.left_isr or (),
        "joined_isr": change.joined_isr or (),
    }
    for event in change.events:
        yield Event(**{**shared, **lists, **nothing, **moved, **event})
