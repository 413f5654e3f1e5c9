"""Who orders the partitions of a cluster: the metadata log where it may be read, else one poller.

Everybody else corroborates and never changes partition state. A poller takes over only after the log's reader has been
silent for longer than ``SILENCE``, told by the times of what was observed, never by a clock.

What follows for the order in which sources are heard: collectors of one log may be behind each other without bound, so
may pollers, and the tables stay the same. A poller beside a log changes nothing while it is at most ``SILENCE`` ahead
of what was heard of the log. Further ahead it takes over, for nobody can tell a log that is late from one that is
silent without waiting for ever; the log takes over again with whatever it tells next, older news than what the poller
told stay untold, and its next snapshot makes the states good. A collector that starts later than another tells at
once, if it is ahead, what the other would have told step by step: the steps between are counted as missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Authority, SnapshotBegin

if TYPE_CHECKING:
    from streaming.changes.state import ClusterState, SourceState
    from streaming.contracts.observations import Observation

SILENCE: Final = Micros(60_000_000)
_RANK: Final = {Authority.NONE: 0, Authority.POLL: 1, Authority.METADATA_LOG: 2}


def may_order(cluster: ClusterState, observed: Observation) -> bool:
    """Tell whether this observation's source orders the cluster's partitions, taking over if it must.

    A lower rank takes over only where its snapshot begins: what it saw before then, nobody has applied.
    """
    if observed.authority is Authority.NONE:
        return False
    if _RANK[observed.authority] >= _RANK[cluster.authority]:
        return True
    seen = cluster.authority_watermark
    is_silent = seen is None or observed.occurred_not_after - seen > SILENCE
    return is_silent and isinstance(observed, SnapshotBegin)


def has_told(other: SourceState, observed: Observation) -> bool:
    """Tell whether another source, of the same rank or above, has come as far as an observation."""
    if Authority.NONE is other.authority or _RANK[other.authority] < _RANK[observed.authority]:
        return False
    offset: int | None = getattr(observed, "metadata_offset", None)
    if offset is not None and other.offset is not None:
        return other.offset >= offset
    return other.observed_until is not None and other.observed_until >= observed.occurred_not_after


def has_passed(other: SourceState, offset: int | None) -> bool:
    """Tell whether another reader of the metadata log is beyond an offset.

    For what bears no epoch of its own: what that reader did not tell was unset again, or is of a topic that is gone.
    """
    is_log = other.authority is Authority.METADATA_LOG
    return is_log and offset is not None and other.offset is not None and other.offset > offset
