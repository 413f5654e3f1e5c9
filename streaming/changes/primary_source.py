"""Which source orders the partitions of a cluster: the metadata log if it can be read, else a poller.

All other sources only add to it and never change partition state. A poller takes over when the metadata log has been
silent for longer than ``SILENCE``, measured by the times of the observations, never by a clock.

Consequences for the order in which sources are applied:

- Collectors of one log, and pollers, may lag behind each other without bound: the tables are the same.
- A poller beside a log changes nothing while it is at most ``SILENCE`` ahead of it. Further ahead it takes over,
  because a log that lags cannot be distinguished from a silent one. The log takes over again with its next observation.
  What it reports that is older than the poller's state is dropped; its next full report corrects the states.
- If a collector that starts later is ahead of another one, it reports at once what the other would have reported step
  by step: the steps in between are counted as missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import SnapshotBegin, SourceKind

if TYPE_CHECKING:
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import ClusterState, SourceState

SILENCE: Final = Micros(60_000_000)
_RANK: Final[dict[str, int]] = {SourceKind.NONE: 0, SourceKind.POLL: 1, SourceKind.METADATA_LOG: 2}


def may_order(cluster: ClusterState, observed: Observation) -> bool:
    """Return whether this observation's source orders the cluster's partitions, or takes over with it.

    A source of lower rank takes over only at the begin of a full report: its earlier observations were not applied.
    """
    if observed.authority is SourceKind.NONE or _is_of_replaced_log(cluster, observed):
        return False
    if may_be_primary(observed.authority, cluster.authority):
        return True
    watermark = cluster.authority_watermark
    is_silent = watermark is None or observed.occurred_not_after - watermark > SILENCE
    return is_silent and isinstance(observed, SnapshotBegin)


def may_be_primary(kind: str, primary: str) -> bool:
    """Return whether a kind of source orders a cluster at once where another kind did, or none."""
    return kind != SourceKind.NONE and _RANK[kind] >= _RANK[primary]


def _is_of_replaced_log(cluster: ClusterState, observed: Observation) -> bool:
    """Return whether a reader of the metadata log reports what is from before another log replaced that one."""
    since = cluster.metadata_log_since
    is_log = observed.authority is SourceKind.METADATA_LOG
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
    if SourceKind.NONE is other.authority or _RANK[other.authority] < _RANK[observed.authority]:
        return False
    offset: int | None = getattr(observed, "metadata_offset", None)
    if offset is not None and other.offset is not None:
        return other.offset >= offset
    return other.observed_until is not None and other.observed_until >= observed.occurred_not_after


def has_passed(other: SourceState, offset: int | None) -> bool:
    """Return whether another reader of the metadata log is beyond an offset.

    For values without an epoch: if that reader does not report one, it was unset again, or its topic was deleted.
    """
    is_log = other.authority is SourceKind.METADATA_LOG
    return is_log and offset is not None and other.offset is not None and other.offset > offset
