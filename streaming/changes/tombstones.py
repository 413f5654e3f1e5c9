"""Deleted partitions: for how long they are remembered, and where their totals go then.

A tombstone prevents a late observation of a deleted topic from making it appear again. After ``KEPT`` no collector can
be that late: it would have been silent for as long, and then begins with a full report. So the tombstones of a day are
dropped when the next day but one begins, by the watermark of the cluster's primary source; their totals are added to
the cluster's own, in the same commit. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from streaming.changes.state import Change, FoldResult
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import DAY, Micros
from streaming.contracts.state import TOTALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.changes.state import ReplicationState
    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.state import ClusterState, PartitionState

KEPT: Final = Micros(86_400_000_000)


def without_expired(state: ReplicationState, folded: FoldResult) -> FoldResult:
    """Drop the expired tombstones after a fold, with one change of the cluster; modify ``folded.touched``."""
    changes = list(folded.changes)
    for cluster_id, cluster in folded.touched.clusters.items():
        until = due(state.clusters.get(cluster_id), cluster)
        if until is None:
            continue
        updated = cluster._replace(tombstones_until=until)
        expired = [
            tombstone for tombstone in _remembered(state, folded.touched, cluster_id) if updated.has_expired(tombstone)
        ]
        if not expired:
            continue
        updated = with_totals(updated, expired)
        folded.touched.clusters[cluster_id] = updated
        seen = next(change.observation for change in reversed(changes) if change.observation.cluster_id == cluster_id)
        changes.append(Change(subject=Subject.CLUSTER, observation=seen, cluster_after=updated))
    return replace(folded, changes=tuple(changes))


def due(before: ClusterState | None, after: ClusterState) -> Micros | None:
    """Return the time up to which tombstones expire; None if no day began since the last time.

    It is counted from the begin of the day, so that it does not depend on how observations are divided into batches.
    """
    now = after.primary_watermark
    if now is None or not after.has_baseline:
        return None
    last = None if before is None else before.primary_watermark
    # Once a day, because that visits every partition.
    return None if last is not None and last // DAY == now // DAY else Micros(now // DAY * DAY - KEPT)


def with_totals(cluster: ClusterState, expired: Iterable[PartitionState]) -> ClusterState:
    """Add the totals of tombstones to those of their cluster; seconds stay whole microseconds."""
    sums: dict[str, Any] = {name: getattr(cluster, f"expired_{name}") for name in TOTALS}
    for partition in expired:
        for name in TOTALS:
            sums[name] = round(sums[name] + getattr(partition, name), 6)
    return cluster._replace(**{f"expired_{name}": value for name, value in sums.items()})


def _remembered(state: ReplicationState, touched: ReplicationState, cluster_id: ClusterId) -> Iterator[PartitionState]:
    for key in {*state.topics_with_tombstones(), *touched.topics_with_tombstones()}:
        if key[0] == cluster_id:
            yield from {**state.topic(key), **touched.topic(key)}.values()
