"""The source that orders the partitions of a cluster: the metadata log if it can be read, else a poller."""

# Theory of operation
#
# One kind of source orders the partitions of a cluster: the metadata log if it can be read, else pollers. This module
# decides it for the fold, by the times and kinds of observations alone: the job may be hours behind, so neither its
# clock nor the moment at which something arrives can say who was silent. The collector decides by its own clock who
# reports (``sources.collector.collector``); the two need not agree, because what is reported without need is dropped
# here.
#
# Ranks: METADATA_LOG over POLL over NONE. A source of the primary rank or a higher one orders at once. One of a lower
# rank takes over where the newest time of the primary source is more than ``SILENCE`` before its own, and only with the
# begin of a full report: what it reported earlier was dropped, so its single steps would be steps from an unknown
# state. NONE never orders.
#
# Consequences for the order in which sources are applied:
#   1. Collectors of one log, and pollers among themselves, may lag behind each other without bound: the tables are the
#      same. tests/changes/test_interleavings.py.
#   2. A poller next to a log changes nothing while it is at most ``SILENCE`` ahead of it. Further ahead it takes over,
#      because a log that lags cannot be distinguished from one that is silent. The log takes over again with its next
#      observation. What it reports that is older than the poller's state is dropped; its next full report corrects the
#      states. tests/changes/test_interleavings.py.
#   3. If a collector that starts later is ahead of another one, it reports at once what the other would have reported
#      step by step: the steps in between are counted as missed. tests/changes/test_interleavings.py.
#   4. No takeover makes a total fall, or counts a step twice. tests/changes/test_totals_of_the_model.py.
#   5. Nothing that a reader still reports of a replaced metadata log is applied (``metadata_log_since``).
#      tests/changes/test_another_log.py.

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from streaming.changes.partitions import with_event_ids
from streaming.changes.state import Change
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import (
    ControllerObserved,
    Heartbeat,
    MaintenanceObserved,
    SnapshotBegin,
    SourceKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from dataclasses import Field

    from streaming.contracts.identifiers import ClusterId, LogPosition
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import ClusterState, SourceState

# More than ``POLL_SNAPSHOT_SECONDS`` and the collector's ``SILENCE_SECONDS``, which make a poller report before this.
SILENCE: Final = Micros(60_000_000)
_RANK: Final[dict[str, int]] = {SourceKind.NONE: 0, SourceKind.POLL: 1, SourceKind.METADATA_LOG: 2}


def may_order(cluster: ClusterState, observed: Observation) -> bool:
    """Return whether this observation's source orders the cluster's partitions, or takes over with it.

    A source of lower rank takes over only at the begin of a full report: its earlier observations were not applied.
    """
    if observed.source_kind is SourceKind.NONE or _is_of_replaced_log(cluster, observed):
        return False
    if may_be_primary(observed.source_kind, cluster.primary_source):
        return True
    watermark = cluster.primary_watermark
    is_silent = watermark is None or observed.occurred_not_after - watermark > SILENCE
    return is_silent and isinstance(observed, SnapshotBegin)


def may_be_primary(kind: str, primary: str) -> bool:
    """Return whether a kind of source orders a cluster at once where another kind did, or none."""
    return kind != SourceKind.NONE and _RANK[kind] >= _RANK[primary]


def _is_of_replaced_log(cluster: ClusterState, observed: Observation) -> bool:
    """Return whether a reader of the metadata log reports what is from before another log replaced that one."""
    since = cluster.metadata_log_since
    is_log = observed.source_kind is SourceKind.METADATA_LOG
    return is_log and since is not None and observed.occurred_not_after < since


def replaces_log(cluster: ClusterState, source_until: int | None) -> bool:
    """Return whether a report of a new metadata log is the first of it: each of its readers reports the same.

    Args:
        cluster: the state before.
        source_until: the newest time that this reader reported before.
    """
    since = cluster.metadata_log_since
    return since is None or (source_until is not None and source_until >= since)


def has_reported(other: SourceState, observed: Observation) -> bool:
    """Return whether another source of the same or a higher rank has reported as far as an observation."""
    if SourceKind.NONE is other.source_kind or _RANK[other.source_kind] < _RANK[observed.source_kind]:
        return False
    offset: int | None = getattr(observed, "metadata_offset", None)
    if offset is not None and other.offset is not None:
        return other.offset >= offset
    return other.observed_until is not None and other.observed_until >= observed.occurred_not_after


def has_passed(other: SourceState, offset: int | None) -> bool:
    """Return whether another reader of the metadata log is beyond an offset.

    For values without an epoch: if that reader does not report one, it was unset again, or its topic was deleted.
    """
    is_log = other.source_kind is SourceKind.METADATA_LOG
    return is_log and offset is not None and other.offset is not None and other.offset > offset


def several_names(states: Iterable[SourceState]) -> Iterator[str]:
    """Yield a sentence for each cluster to which sources give different names at one time: it has the name of one."""
    by_cluster: defaultdict[ClusterId, list[SourceState]] = defaultdict(list)
    for state in states:
        if state.observed_until is not None:
            by_cluster[state.cluster_id].append(state)
    for cluster_id, its in by_cluster.items():
        newest = max(state.observed_until or 0 for state in its)
        sources = {state.cluster: state.source for state in its if newest - (state.observed_until or 0) <= SILENCE}
        if len(sources) > 1:
            names = " and ".join(f"{name!r} by {source}" for name, source in sorted(sources.items()))
            yield f"cluster {cluster_id} is called {names}, and counts as one: collect it once, or by one name"


# Clock skew: when an observation happened, as far as the clock of its source can be believed.
#
# Order never depends on clocks: the metadata log has offsets, a source its sequence numbers. Times come from the
# clocks of controllers and collectors, which jump. Two rules keep a jump from doing harm for longer than it lasts:
#
# - Nothing is observed before it happens. A time more than ``MAX_SKEW`` after the observation was collected becomes the
#   time at which it was collected: a controller clock that was hours ahead for a while moves no watermark hours ahead.
# - A poller whose clock was set back, and whose process was restarted, must not make its observations look old: they
#   happened no earlier than what the same source reported before. (Times of the log never run back:
#   ``sources.metadata_log.image``.)
#
# A collector whose own clock is ahead is believed for an hour, because nothing here can correct it: its times, and the
# watermark, are ahead until real time has caught up; durations stand still meanwhile, and none is ever negative.
# Further ahead (``is_ahead``) it would silence other sources for that long, so the job, which has a clock, refuses it.


MAX_SKEW: Final = Micros(60_000_000)
MAX_AHEAD: Final = Micros(3_600_000_000)


class TimedObservation(Protocol):
    """The times of an observation, borne by itself or by its envelope. A frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def source_kind(self) -> SourceKind:
        """The kind of source."""

    @property
    def occurred_not_before(self) -> Micros:
        """Begin of the window in which it happened."""

    @property
    def occurred_not_after(self) -> Micros:
        """End of the window in which it happened."""

    @property
    def collected_at(self) -> Micros:
        """Time at which the collector received it."""


T = TypeVar("T", bound=TimedObservation)


def with_plausible_time(observed: T, newest_before: int | None) -> T:
    """Return an observation, or its envelope, with the time at which it can have happened.

    Args:
        observed: as its source reported it.
        newest_before: the newest time that the same source reported before, None for none.
    """
    at = observed.occurred_not_after
    if at > observed.collected_at + MAX_SKEW:
        at = observed.collected_at
    if observed.source_kind is SourceKind.POLL and newest_before is not None and at < newest_before:
        at = Micros(newest_before)
    if at == observed.occurred_not_after:
        return observed
    moved: dict[str, Any] = {"occurred_not_before": min(observed.occurred_not_before, at), "occurred_not_after": at}
    by = observed.occurred_not_after - at
    if isinstance(observed, MaintenanceObserved):  # it was announced for so long from then on
        moved["lease_until"] = max(0, observed.lease_until - by)
    elif isinstance(observed, ControllerObserved) and observed.silent_since is not None:  # and silent for so long
        moved["silent_since"] = max(0, observed.silent_since - by)
    return replace(observed, **moved)


def is_ahead(observed: TimedObservation, now: int) -> bool:
    """Return whether an observation was collected further ahead of a clock than is believed."""
    return observed.collected_at > now + MAX_AHEAD


# Consequences of a log on the bus that is another one than before: replaced, restored from a copy, or cut.
#
# Its observations are numbered from the beginning, so no number of the old log says that one of the new log was
# applied. Until the next numbers say it again, the content alone does: offsets and epochs, or the times of polls.


def of_replaced_logs(sources: Iterable[SourceState], now_at: Mapping[str, LogPosition]) -> Iterator[Change]:
    """Yield one change per source whose log is another one: it begins again, and what is lost is recorded.

    How much the old log held beyond what was applied is unknown, so the event names where that ends. If it was a
    change of a partition, the partition's epochs will show it.

    Args:
        sources: all of them.
        now_at: the last record that the new log has in common with what was applied, by the name of the source.
    """
    for before in sources:
        at = now_at.get(before.source)
        if at is None:
            continue
        detail = (
            f"the log of {before.source} on the bus was replaced, restored from a copy, or cut: what it held after "
            f"number {before.sequence}, and had not been applied, is missing"
        )
        identity = f"{before.cluster_id}/log/{before.source}/{before.log_id or 0}/{before.position}"
        yield Change(
            subject=Subject.SOURCE,
            observation=newest_of(before),
            events=with_event_ids(identity, iter([(EventKind.CHANGES_MISSED, None, detail)])),
            source_after=before._replace(position=at.position, log_id=at.log_id, sequence=0, observed_until=None),
        )


def newest_of(source: SourceState) -> Heartbeat:
    """Return an observation with the times of the newest one that was applied."""
    moment = source.observed_until or Micros(0)
    return Heartbeat(
        cluster_id=source.cluster_id,
        cluster=source.cluster,
        source=source.source,
        source_kind=source.source_kind,
        sequence=source.sequence,
        occurred_not_before=moment,
        occurred_not_after=moment,
        collected_at=source.collected_at or moment,
    )
