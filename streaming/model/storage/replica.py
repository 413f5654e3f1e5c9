"""One replica on a broker's disk: its log and its high watermark. Knows no leaders, no ISR, no time."""

from __future__ import annotations

from streaming.model.storage.log import Log


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
        """Follower: drop everything and begin anew at ``offset``, where the leader's log starts."""
        self.log.restart_at(offset)
        self.move_high_watermark(offset)

    def take_leader_offsets(self, high_watermark: int, log_start: int) -> None:
        """Follower: take over the leader's high watermark and log start, as far as the own log reaches."""
        log = self.log
        reached = high_watermark if high_watermark < log.end else log.end  # noqa: FURB136 - min() doubles the costs
        self.move_high_watermark(reached)
        if log_start > log.start:
            log.start_at(min(log_start, self.high_watermark))
