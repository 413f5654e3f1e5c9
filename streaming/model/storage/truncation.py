"""Where a follower's log parts from its leader's (KIP-101, KIP-279, KIP-595). Pure: logs in, offsets out.

Knows logs and epochs; neither who leads nor how the question travels (see ``Truncation`` for the ways).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.model.errors import Error
from streaming.model.storage.log import NO_EPOCH, UNDEFINED_OFFSET

if TYPE_CHECKING:
    from streaming.model.storage.log import EpochEntry, Log


class TruncationPoint(NamedTuple):
    """Cut here; if not ``is_complete``, ask the leader again with the last epoch that is left."""

    offset: int
    is_complete: bool = True


def check_fetch(log: Log, offset: int, last_fetched_epoch: int) -> Error | EpochEntry | None:
    """Leader: may a follower at ``offset``, after a record of ``last_fetched_epoch``, read on here?

    None if it may, the diverging epoch and its end if its log is another, or OFFSET_OUT_OF_RANGE. Below the log start
    that is so even where the epochs diverge. A follower that states no epoch (``NO_EPOCH``) is taken at its word.
    """
    is_in_range = log.start <= offset <= log.end
    if is_in_range and log.epochs and last_fetched_epoch == log.epochs[-1][0]:  # nearly always
        return None
    if last_fetched_epoch != NO_EPOCH:
        epoch, end = log.end_offset_for(last_fetched_epoch)
        if end == UNDEFINED_OFFSET or offset < log.start:
            return Error.OFFSET_OUT_OF_RANGE
        if epoch < last_fetched_epoch or end < offset:
            return (epoch, end)
    return None if is_in_range else Error.OFFSET_OUT_OF_RANGE


def truncation_point(log: Log, high_watermark: int, epoch_end: EpochEntry) -> TruncationPoint:
    """Follower: where to cut after the leader told where an epoch of this log ends there.

    ===========================================  =============================  ========
    the leader told                              cut at                         complete
    ===========================================  =============================  ========
    nothing: it does not know the epoch          own high watermark             yes
    an end, but of which epoch (KIP-101)         that end                       yes
    an epoch that this log has                   the earlier of both ends       yes
    an epoch between two of this log             own end of the one before      no
    an epoch above everything in this log        that end                       yes
    ===========================================  =============================  ========

    Each incomplete round strictly lowers the last epoch, so asking again comes to an end.
    """
    epoch, end = epoch_end
    if end == UNDEFINED_OFFSET:
        return TruncationPoint(high_watermark)
    own_epoch, own_end = log.end_offset_for(epoch)
    if own_end == UNDEFINED_OFFSET:
        return TruncationPoint(min(end, log.end))
    if own_epoch == epoch:
        return TruncationPoint(min(own_end, end, log.end))
    return TruncationPoint(min(own_end, log.end), is_complete=False)
