"""Who orders the partitions of a cluster: the metadata log where it may be read, else one poller.

Everybody else corroborates and never changes partition state. A poller takes over only after the log's reader has been
silent for longer than ``SILENCE``, told by the times of what was observed, never by a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Authority, SnapshotBegin

if TYPE_CHECKING:
    from streaming.changes.state import ClusterState
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
