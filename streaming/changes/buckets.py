"""A batch of one cluster, cut into buckets of topics: what each bucket must see, so that folds of all equal one fold.

A bucket owns topics by their names, so that a topic's partitions, its next lives and its configuration stay together.
It sees its own observations and those that concern everybody whole. Of the others it sees only numbers and times, as
``Confirmed`` runs before whatever it sees next: gaps, watermarks and authority come out as if it had seen all of them.
Bucket 0 has no topics: it is the cluster's own bucket, which alone tells of brokers, cluster and sources.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.changes.authority import may_order
from streaming.changes.change import Subject
from streaming.changes.clocks import dated
from streaming.changes.confirmed import Confirmed
from streaming.changes.state import ClusterState
from streaming.contracts.identifiers import ClusterId, Micros, Offset
from streaming.contracts.observations import (
    Authority,
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
    TopicRemoved,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streaming.changes.change import Change
    from streaming.changes.fold import Folded
    from streaming.changes.state import ReplicationState

THE_CLUSTERS: Final = 0


class Audience(StrEnum):
    """Who must see an observation whole."""

    OWNER = "owner"
    CLUSTER = "cluster"
    OWNER_AND_CLUSTER = "owner_and_cluster"
    EVERYBODY = "everybody"
    NOBODY = "nobody"


_AUDIENCES: Final[dict[type[Observation], Audience]] = {
    PartitionObserved: Audience.OWNER,
    CauseRevised: Audience.OWNER,
    TopicRemoved: Audience.OWNER,
    BrokerObserved: Audience.CLUSTER,
    ControllerObserved: Audience.CLUSTER,
    SnapshotBegin: Audience.EVERYBODY,
    SnapshotEnd: Audience.EVERYBODY,
    Heartbeat: Audience.NOBODY,
}
_OWN: Final = (PartitionObserved, CauseRevised, TopicRemoved)


def audience(observed: Observation) -> Audience:
    """Tell who must see an observation whole; a configuration concerns its topic, or all of them."""
    if isinstance(observed, ConfigObserved):
        return Audience.OWNER_AND_CLUSTER if observed.topic else Audience.EVERYBODY
    return _AUDIENCES[type(observed)]


@dataclass(frozen=True, slots=True)
class Seen:
    """The envelope of one observation of the cluster, and where it belongs."""

    bucket: int
    audience: Audience
    source: str
    authority: Authority
    sequence: int
    occurred_not_before: Micros
    occurred_not_after: Micros
    collected_at: Micros
    metadata_offset: Offset | None
    cluster: str
    begins_snapshot: bool
    in_snapshot: bool

    @classmethod
    def of(cls, observed: Observation, bucket: int) -> Seen:
        """Take the envelope of an observation whose topic has this bucket."""
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
            in_snapshot=getattr(observed, "in_snapshot", False),
        )


class Routed(NamedTuple):
    """One thing a bucket sees: the observation of that place in the order, or ``instead`` of it only its envelope."""

    bucket: int
    order: int
    instead: Heartbeat | Confirmed | None


@dataclass(slots=True)
class _Heard:
    """What is known of one source: its last number and time, and the newest times since somebody else took over."""

    sequence: int
    until: int | None = None
    newest: Seen | None = None
    not_after: int = 0
    collected_at: int = 0
    offset: int | None = None

    def hear(self, seen: Seen) -> None:
        """Take one observation in."""
        self.sequence = seen.sequence or self.sequence
        self.newest = seen
        self.until = max(self.until or 0, seen.occurred_not_after)
        self.not_after = max(self.not_after, seen.occurred_not_after)
        self.collected_at = max(self.collected_at, seen.collected_at)
        self.offset = max((x for x in (self.offset, seen.metadata_offset) if x is not None), default=None)

    def forget(self) -> None:
        """Begin anew: what was heard so far was told to everybody."""
        self.newest, self.not_after, self.collected_at, self.offset = None, 0, 0, None

    def since(self, sequence: int, cluster_id: ClusterId) -> Confirmed | None:
        """Tell what came after a number as one run; None where nothing did."""
        newest = self.newest
        if newest is None or self.sequence <= sequence:
            return None
        return Confirmed(
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
    _heard: dict[str, _Heard] = field(init=False, default_factory=dict)
    _told: dict[tuple[int, str], int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with what the cluster and its sources are known to be."""
        known = self.before.clusters.get(self.cluster_id)
        self._cluster = known or ClusterState(cluster_id=self.cluster_id, cluster="")

    def route(self, merged: Sequence[Seen]) -> Iterator[Routed]:
        """Tell each bucket what it must see.

        Args:
            merged: every observation of the batch, the sources merged, in the order of the fold.
        """
        last = {seen.source: order for order, seen in enumerate(merged)}
        for order, told in enumerate(merged):
            heard = self._heard.setdefault(told.source, self._known(told.source))
            seen = dated(told, heard.until)
            if seen.sequence and seen.sequence <= heard.sequence:
                yield from self._runs(THE_CLUSTERS, order)
                yield Routed(THE_CLUSTERS, order, self._replay(told))  # a replay: counted, and nothing else
                continue
            is_turn = self._is_turn(seen, heard)
            whole = self._whole(seen)
            exact = set(self.buckets) if is_turn else whole
            if last[seen.source] == order or seen.sequence > heard.sequence + 1:
                exact = exact | {THE_CLUSTERS}  # its row tells of this one; or of what is missing before it
            for bucket in sorted(exact):
                yield from self._runs(bucket, order)
                yield Routed(bucket, order, None if bucket in whole else self._envelope(seen))
                self._told[bucket, seen.source] = seen.sequence
            self._take(seen, heard, is_turn=is_turn)

    def _known(self, source: str) -> _Heard:
        known = self.before.sources.get((self.cluster_id, source))
        return _Heard(0) if known is None else _Heard(known.sequence, known.observed_until)

    def _whole(self, seen: Seen) -> set[int]:
        if seen.audience is Audience.EVERYBODY:
            return set(self.buckets)
        owner = {seen.bucket} if seen.audience in (Audience.OWNER, Audience.OWNER_AND_CLUSTER) else set()
        cluster = {THE_CLUSTERS} if seen.audience in (Audience.CLUSTER, Audience.OWNER_AND_CLUSTER) else set()
        return owner | cluster

    def _is_turn(self, seen: Seen, heard: _Heard) -> bool:
        """Tell whether all that comes before this one must be told to everybody before all that comes after it.

        Where somebody new takes the cluster over, the times before and after count differently.
        """
        if heard.newest is not None and (seen.authority, seen.cluster) != (
            heard.newest.authority,
            heard.newest.cluster,
        ):
            return True
        return not seen.sequence or self._takes_over(seen)

    def _takes_over(self, seen: Seen) -> bool:
        if seen.authority is self._cluster.authority:
            return False
        begin = SnapshotBegin(**self._fields(seen), snapshot_id="", reason=SnapshotReason.PERIODIC)
        return may_order(self._cluster, begin if seen.begins_snapshot else self._envelope(seen))

    def _runs(self, bucket: int, order: int) -> Iterator[Routed]:
        for source, heard in self._heard.items():
            told = self._told.get((bucket, source))
            run = heard.since(self._known(source).sequence if told is None else told, self.cluster_id)
            if run is not None:
                yield Routed(bucket, order, run)
                self._told[bucket, source] = run.sequence

    def _take(self, seen: Seen, heard: _Heard, *, is_turn: bool) -> None:
        """Follow the authority of the cluster, as the fold does."""
        if is_turn:
            if self._takes_over(seen):
                self._cluster = ClusterState(
                    cluster_id=self.cluster_id,
                    cluster="",
                    authority=seen.authority,
                    authority_watermark=self._cluster.authority_watermark,
                )
            for each in self._heard.values():
                each.forget()
        heard.hear(seen)
        if is_turn:
            heard.forget()
        if seen.authority is self._cluster.authority is not Authority.NONE:
            self._cluster = self._cluster.seen(seen.occurred_not_after, is_authority=True)

    def _envelope(self, seen: Seen) -> Heartbeat:
        """Make what has the envelope of an observation, and says nothing."""
        return Heartbeat(**self._fields(seen))

    def _replay(self, seen: Seen) -> Heartbeat | Confirmed:
        """Make what is dropped as the observation would be: a snapshot repeats by its nature, the others count."""
        if seen.in_snapshot:
            return Confirmed(**self._fields(seen), first_sequence=seen.sequence)
        return self._envelope(seen)

    def _fields(self, seen: Seen) -> dict[str, Any]:
        names = (item.name for item in fields(Heartbeat) if item.name != "cluster_id")
        return {"cluster_id": self.cluster_id, **{name: getattr(seen, name) for name in names}}


def told_by(bucket: int, folded: Folded) -> list[Change]:
    """Keep the changes that a bucket answers for: partitions are their owners', everything else is the cluster's."""
    is_cluster = bucket == THE_CLUSTERS
    return [change for change in folded.changes if (change.subject is not Subject.PARTITION) == is_cluster]


def own_drops(observations: Iterable[Observation]) -> Iterator[Observation]:
    """Keep the dropped observations that an owner counts; the cluster's bucket counts what it drops itself."""
    return (observed for observed in observations if isinstance(observed, _OWN))
