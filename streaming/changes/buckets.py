"""A batch of one cluster, cut into buckets of topics: what each bucket must get, so that folds of all equal one fold.

A bucket owns topics by their names, so that a topic's partitions, its next lives and its configuration stay together.
It gets its own observations, and those that concern every bucket, whole. Of the others it gets only sequence numbers
and times, as an ``UnchangedRun`` before the next observation that it gets: gaps, watermarks and the primary source come
out as if it had folded all of them. Bucket 0 has no topics: only this bucket of the cluster itself yields the changes
of brokers, cluster and sources.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.changes.clock_skew import MAX_SKEW, with_plausible_time
from streaming.changes.primary_source import is_of_replaced_log, may_order, replaces_log
from streaming.changes.unchanged_run import UnchangedRun
from streaming.contracts.blocks import PartitionsChanged, PartitionsObserved
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import ClusterId, Micros, Offset
from streaming.contracts.maintenance import MaintenanceObserved
from streaming.contracts.observations import (
    CLUSTER_TIMES,
    BrokerObserved,
    CauseRevised,
    ConfigObserved,
    ControllerObserved,
    Heartbeat,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
    TopicRemoved,
)
from streaming.contracts.state import ClusterState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streaming.changes.change import Change, Folded
    from streaming.changes.state import ReplicationState

CLUSTER_BUCKET: Final = 0


class Audience(StrEnum):
    """Which buckets must get an observation whole."""

    OWNER = "owner"
    CLUSTER = "cluster"
    OWNER_AND_CLUSTER = "owner_and_cluster"
    EVERY_BUCKET = "every_bucket"
    NO_BUCKET = "no_bucket"


_AUDIENCES: Final[dict[type[Observation], Audience]] = {
    PartitionObserved: Audience.OWNER,
    PartitionsObserved: Audience.OWNER,
    PartitionsChanged: Audience.OWNER,
    CauseRevised: Audience.OWNER,
    TopicRemoved: Audience.OWNER,
    BrokerObserved: Audience.CLUSTER,
    MaintenanceObserved: Audience.CLUSTER,
    ControllerObserved: Audience.CLUSTER,
    SnapshotBegin: Audience.EVERY_BUCKET,
    SnapshotEnd: Audience.EVERY_BUCKET,
    Heartbeat: Audience.NO_BUCKET,
}
_OF_OWNER: Final = (PartitionObserved, CauseRevised, TopicRemoved)


def audience(observed: Observation) -> Audience:
    """Return who must get an observation whole; a configuration concerns its topic, or all of them."""
    if isinstance(observed, ConfigObserved):
        if observed.key in CLUSTER_TIMES:
            return Audience.CLUSTER
        return Audience.OWNER_AND_CLUSTER if observed.topic else Audience.EVERY_BUCKET
    return _AUDIENCES[type(observed)]


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the order of a batch needs of one observation, and the bucket of its topic."""

    bucket: int
    audience: Audience
    source: str
    authority: SourceKind
    sequence: int
    occurred_not_before: Micros
    occurred_not_after: Micros
    collected_at: Micros
    metadata_offset: Offset | None
    cluster: str
    begins_snapshot: bool
    begins_log: bool
    in_snapshot: bool

    @classmethod
    def of(cls, observed: Observation, bucket: int) -> Envelope:
        """Return the envelope of an observation whose topic is in this bucket."""
        return cls(
            bucket=bucket,
            audience=audience(observed),
            source=observed.source,
            authority=observed.authority,
            sequence=observed.sequence,
            occurred_not_before=observed.occurred_not_before,
            occurred_not_after=observed.occurred_not_after,
            collected_at=observed.collected_at,
            metadata_offset=getattr(observed, "metadata_offset", None),
            cluster=observed.cluster,
            begins_snapshot=isinstance(observed, SnapshotBegin),
            begins_log=isinstance(observed, SnapshotBegin) and observed.is_new_log,
            in_snapshot=getattr(observed, "in_snapshot", False),
        )


class Routed(NamedTuple):
    """One thing that a bucket gets: the observation at that place in the order, or ``instead`` only its envelope."""

    bucket: int
    order: int
    instead: Heartbeat | UnchangedRun | None


@dataclass(slots=True)
class _SourceProgress:
    """How far one source was routed: its last number and time, and the newest times since the last turn.

    A turn is the moment up to which every bucket has got everything (``Router._is_turn``).
    """

    sequence: int
    until: int | None = None
    newest: Envelope | None = None
    not_after: int = 0
    collected_at: int = 0
    offset: int | None = None

    def advance(self, envelope: Envelope) -> None:
        """Move forward by one observation."""
        self.sequence = envelope.sequence or self.sequence
        self.newest = envelope
        self.until = max(self.until or 0, envelope.occurred_not_after)
        self.not_after = max(self.not_after, envelope.occurred_not_after)
        self.collected_at = envelope.collected_at
        self.offset = max((x for x in (self.offset, envelope.metadata_offset) if x is not None), default=None)

    def turn(self) -> None:
        """Reset: every bucket has received everything so far."""
        self.newest, self.not_after, self.collected_at, self.offset = None, 0, 0, None

    def run_after(self, sequence: int, cluster_id: ClusterId) -> UnchangedRun | None:
        """Return what came after a number as one run; None where nothing did."""
        newest = self.newest
        if newest is None or self.sequence <= sequence:
            return None
        return UnchangedRun(
            cluster_id=cluster_id,
            cluster=newest.cluster,
            source=newest.source,
            authority=newest.authority,
            first_sequence=sequence + 1,
            sequence=self.sequence,
            occurred_not_before=min(newest.occurred_not_before, Micros(self.not_after)),
            occurred_not_after=Micros(self.not_after),
            collected_at=Micros(self.collected_at),
            metadata_offset=None if self.offset is None else Offset(self.offset),
        )


@dataclass(slots=True)
class Router:
    """Cuts the observations of one cluster, in the order in which they are folded."""

    before: ReplicationState
    cluster_id: ClusterId
    buckets: Sequence[int]
    _cluster: ClusterState = field(init=False)
    _progress: dict[str, _SourceProgress] = field(init=False, default_factory=dict)
    _routed: dict[tuple[int, str], int] = field(init=False, default_factory=dict)
    """(bucket, source) to the last number that the bucket got."""

    def __post_init__(self) -> None:
        """Begin with the state of the cluster and of its sources."""
        cluster = self.before.clusters.get(self.cluster_id)
        self._cluster = cluster or ClusterState(cluster_id=self.cluster_id, cluster="")

    def route(self, merged: Sequence[Envelope]) -> Iterator[Routed]:
        """Yield what each bucket must get.

        Args:
            merged: every observation of the batch, the sources merged, in the order of the fold.
        """
        last = {envelope.source: order for order, envelope in enumerate(merged)}
        for order, reported in enumerate(merged):
            progress = self._progress.setdefault(reported.source, self._progress_before(reported.source))
            envelope = with_plausible_time(reported, progress.until)
            if envelope.sequence and envelope.sequence <= progress.sequence:
                # A replay: the cluster's bucket counts it, and nothing else happens.
                yield from self._runs(CLUSTER_BUCKET, order)
                yield Routed(CLUSTER_BUCKET, order, self._replay(reported))
                continue
            is_turn = self._is_turn(envelope, progress)
            whole = self._buckets_with_whole(envelope)
            exact = set(self.buckets) if is_turn else whole
            if last[envelope.source] == order or envelope.sequence > progress.sequence + 1:
                # The cluster's bucket writes the source's row, of its last observation, and the gap before this one.
                exact = exact | {CLUSTER_BUCKET}
            for bucket in sorted(exact):
                yield from self._runs(bucket, order)
                yield Routed(bucket, order, None if bucket in whole else self._heartbeat(envelope))
                self._routed[bucket, envelope.source] = envelope.sequence
            self._advance(envelope, progress, is_turn=is_turn)

    def _progress_before(self, source: str) -> _SourceProgress:
        state = self.before.sources.get((self.cluster_id, source))
        return _SourceProgress(0) if state is None else _SourceProgress(state.sequence, state.observed_until)

    def _buckets_with_whole(self, envelope: Envelope) -> set[int]:
        if envelope.audience is Audience.EVERY_BUCKET:
            return set(self.buckets)
        owner = {envelope.bucket} if envelope.audience in (Audience.OWNER, Audience.OWNER_AND_CLUSTER) else set()
        cluster = {CLUSTER_BUCKET} if envelope.audience in (Audience.CLUSTER, Audience.OWNER_AND_CLUSTER) else set()
        return owner | cluster

    def _is_turn(self, envelope: Envelope, progress: _SourceProgress) -> bool:
        """Return whether every bucket must get all that comes before this one before it gets anything after it.

        One run merges times and offsets. Where another primary source takes the cluster over, times before and after
        count differently, so no run may span that, nor the begin of another metadata log, whose offsets begin anew, nor
        a collector's clock that was set back, before which it seems to be collected; one without a number is in none.
        """
        newest = progress.newest
        if newest is not None and (envelope.authority, envelope.cluster) != (newest.authority, newest.cluster):
            return True
        if progress.not_after > envelope.collected_at + MAX_SKEW:
            return True
        return not envelope.sequence or envelope.begins_log or self._takes_over(envelope)

    def _takes_over(self, envelope: Envelope) -> bool:
        if envelope.authority is self._cluster.authority:
            return False
        begin = SnapshotBegin(**self._fields(envelope), snapshot_id="", reason=SnapshotReason.PERIODIC)
        return may_order(self._cluster, begin if envelope.begins_snapshot else self._heartbeat(envelope))

    def _runs(self, bucket: int, order: int) -> Iterator[Routed]:
        """Yield what a bucket has not got yet of every source, as runs."""
        for source, progress in self._progress.items():
            routed = self._routed.get((bucket, source))
            after = self._progress_before(source).sequence if routed is None else routed
            run = progress.run_after(after, self.cluster_id)
            if run is not None:
                yield Routed(bucket, order, run)
                self._routed[bucket, source] = run.sequence

    def _advance(self, envelope: Envelope, progress: _SourceProgress, *, is_turn: bool) -> None:
        """Move the source forward, and the primary source and watermark of the cluster, as the fold does."""
        if is_turn:
            if self._takes_over(envelope):
                self._cluster = self._cluster._replace(authority=envelope.authority)
            is_of_present = not is_of_replaced_log(self._cluster, self._heartbeat(envelope))
            if envelope.begins_log and is_of_present and replaces_log(self._cluster, progress.until):
                self._cluster = self._cluster._replace(metadata_log_since=envelope.occurred_not_after)
            for each in self._progress.values():
                each.turn()
        progress.advance(envelope)
        if is_turn:
            progress.turn()
        if envelope.authority is self._cluster.authority is not SourceKind.NONE:
            self._cluster = self._cluster.with_watermark(envelope.occurred_not_after, is_primary=True)

    def _heartbeat(self, envelope: Envelope) -> Heartbeat:
        """Return an observation with this envelope and no content."""
        return Heartbeat(**self._fields(envelope))

    def _replay(self, envelope: Envelope) -> Heartbeat | UnchangedRun:
        """Return what is dropped as the observation would be: replays count, but not within a full report."""
        if envelope.in_snapshot:
            return UnchangedRun(**self._fields(envelope), first_sequence=envelope.sequence)
        return self._heartbeat(envelope)

    def _fields(self, envelope: Envelope) -> dict[str, Any]:
        names = (item.name for item in fields(Heartbeat) if item.name != "cluster_id")
        return {"cluster_id": self.cluster_id, **{name: getattr(envelope, name) for name in names}}


def owned_changes(bucket: int, folded: Folded) -> list[Change]:
    """Return the changes that a bucket yields: partitions are their owner's, everything else the cluster bucket's."""
    is_cluster = bucket == CLUSTER_BUCKET
    return [change for change in folded.changes if (change.subject is not Subject.PARTITION) == is_cluster]


def owned_drops(observations: Iterable[Observation]) -> Iterator[Observation]:
    """Yield the dropped observations that an owner counts; the cluster's bucket counts what it drops itself."""
    return (observed for observed in observations if isinstance(observed, _OF_OWNER))
