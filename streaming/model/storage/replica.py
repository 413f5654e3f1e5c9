"""One replica on a broker's disk: its log and its high watermark. Knows no leaders, no ISR, no time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.model.constants import Error
from streaming.model.storage.log import NO_EPOCH, UNDEFINED_OFFSET, Log

if TYPE_CHECKING:
    from streaming.model.storage.log import EpochEntry


class HighWatermarkCheckpoint:
    """The file ``replication-offset-checkpoint`` of one disk, kept as what has moved since it was written.

    So writing it costs as much as there are replicas that moved, and a replica's line in the file is ``moved[replica]``
    or, if it is not there, what the replica says itself.
    """

    __slots__ = ("moved",)

    def __init__(self) -> None:
        self.moved: dict[LocalReplica, int] = {}

    def write(self) -> None:
        """Broker, each ``replica.high.watermark.checkpoint.interval.ms`` and at a clean stop."""
        self.moved.clear()

    def read(self) -> None:
        """The process is gone, and with it what it only had in memory; logs may have become shorter, too."""
        for replica, written in self.moved.items():
            replica.high_watermark = min(max(written, replica.log.start), replica.log.end)
        self.moved.clear()


class LocalReplica:
    """A replica on a broker's disk; it outlives the process.

    Attributes:
        log: the records.
        high_watermark: everything below is committed, as far as this replica heard. Invariant: log start ≤ high
            watermark ≤ log end. A leader's never falls in its leader epoch; a follower's falls with a truncation, and a
            restart falls back to the checkpoint, which is why a follower must not truncate to it (KIP-101).
    """

    __slots__ = ("_checkpoint", "high_watermark", "log")

    def __init__(self, checkpoint: HighWatermarkCheckpoint) -> None:
        self.log = Log()
        self.high_watermark = 0
        self._checkpoint = checkpoint

    def move_high_watermark(self, offset: int) -> None:
        """Leader: forward only. Follower: to the leader's, as far as the own log reaches; that may be backwards."""
        if offset != self.high_watermark:
            self._checkpoint.moved.setdefault(self, self.high_watermark)
            self.high_watermark = offset

    def truncate(self, offset: int) -> None:
        """Follower: drop every record at or after ``offset``."""
        self.log.truncate(offset)
        self.move_high_watermark(min(self.high_watermark, self.log.end))

    def restart_at(self, offset: int) -> None:
        """Follower: drop everything and start over at ``offset``, where the leader's log starts."""
        self.log.restart_at(offset)
        self.move_high_watermark(offset)

    def take_leader_offsets(self, high_watermark: int, log_start: int) -> None:
        """Follower: take over the leader's high watermark and log start, as far as the own log reaches."""
        log = self.log
        reached = high_watermark if high_watermark < log.end else log.end  # noqa: FURB136 - min() doubles the costs
        self.move_high_watermark(reached)
        if log_start > log.start:
            log.start_at(min(log_start, self.high_watermark))


# The offset at which a follower's log parts from its leader's (KIP-101, KIP-279, KIP-595). Pure: logs in, offsets out.
#
# Knows logs and epochs; neither who leads nor how the question travels (see ``Truncation`` for the ways).


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
