"""How long a deleted partition is remembered, and where its totals go then.

A tombstone keeps late news of a deleted topic from making it appear again. After ``KEPT`` no collector can be that
late: it would have been out of sight for as long, and begins with a snapshot then. So the tombstones of a day go when
the next but one begins, by the time of what the cluster's authority tells; their totals are folded into the cluster's
own, in the same commit. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from streaming.changes.change import Change, Subject
from streaming.changes.fold import Folded
from streaming.contracts.identifiers import Micros
from streaming.contracts.totals import TOTALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.changes.state import ClusterState, PartitionState, ReplicationState
    from streaming.contracts.identifiers import ClusterId

KEPT: Final = Micros(86_400_000_000)
_DAY: Final = 86_400_000_000  # they are looked for once a day: it takes a look at every partition


def without_expired(state: ReplicationState, folded: Folded) -> Folded:
    """Let go the tombstones whose time is over after a fold; one change of the cluster tells it.

    Args:
        state: what the fold began with.
        folded: what it gave; its ``touched`` is changed.
    """
    changes = list(folded.changes)
    for cluster_id, cluster in folded.touched.clusters.items():
        until = due(state.clusters.get(cluster_id), cluster)
        if until is None:
            continue
        buried = replace(cluster, tombstones_until=until)
        expired = [it for it in _remembered(state, folded.touched, cluster_id) if buried.has_expired(it)]
        if not expired:
            continue
        buried = with_totals(buried, expired)
        folded.touched.clusters[cluster_id] = buried
        seen = next(it.observation for it in reversed(changes) if it.observation.cluster_id == cluster_id)
        changes.append(Change(subject=Subject.CLUSTER, observation=seen, cluster_after=buried))
    return replace(folded, changes=tuple(changes))


def due(before: ClusterState | None, after: ClusterState) -> Micros | None:
    """Give the moment up to which tombstones expire, None where no day of the cluster began since they last did.

    It is told from the begin of the day, so that it does not depend on how observations are cut into batches.
    """
    now = after.authority_watermark
    if now is None or not after.has_baseline:
        return None
    last = None if before is None else before.authority_watermark
    return None if last is not None and last // _DAY == now // _DAY else Micros(now // _DAY * _DAY - KEPT)


def with_totals(cluster: ClusterState, expired: Iterable[PartitionState]) -> ClusterState:
    """Add the totals of tombstones to those of their cluster; seconds stay whole microseconds."""
    sums: dict[str, Any] = {name: getattr(cluster, f"expired_{name}") for name in TOTALS}
    for partition in expired:
        for name in TOTALS:
            sums[name] = round(sums[name] + getattr(partition, name), 6)
    return replace(cluster, **{f"expired_{name}": value for name, value in sums.items()})


def _remembered(state: ReplicationState, touched: ReplicationState, cluster_id: ClusterId) -> Iterator[PartitionState]:
    for key in {*state.topics, *touched.topics}:
        if key[0] == cluster_id:
            yield from {**state.topics.get(key, {}), **touched.topics.get(key, {})}.values()
