"""The read position in the metadata log, and the effect of each Fetch response (KIP-595, KIP-630). No socket, no clock.

The leader also returns records that are not committed yet, because its followers replicate them. They are *held* until
the high watermark passes them, and dropped when the leader responds with a diverging epoch before them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from streaming.sources.metadata_log.batches import EncodedBatch, is_intact, split
from streaming.sources.metadata_log.messages import FetchResponseFields, LogEnd

NONE: Final = 0
START: Final = LogEnd(0, 0)
UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The effect of one Fetch response.

    Attributes:
        batches: batches that are committed now, in order.
        snapshot: the log begins after the read position: load this KRaft snapshot instead.
        rewritten: records that were applied are not in this log: everything must be read again, from ``snapshot`` on
            if there is one.
        error: Kafka's error code, 0 for none.
        corrupt: a batch at ``end`` has an invalid checksum; it was left out, to be fetched again.
    """

    batches: tuple[EncodedBatch, ...] = ()
    snapshot: LogEnd | None = None
    rewritten: bool = False
    error: int = NONE
    corrupt: bool = False


class Position:
    """The read position.

    Invariants: ``applied.offset <= end.offset``, and ``_held`` holds exactly the batches between the two, in order.
    A batch is released only when all of it is below the high watermark, so ``applied`` never has to be taken back
    unless the quorum lost committed records. The high watermark may decrease with a new leader; released batches stay.

    Attributes:
        applied: end of the batches that were released as committed.
        end: end of the batches that were received; the offset of the next Fetch.
        high_watermark: end of the committed log in the last response; -1 while unknown.
    """

    def __init__(self, applied: LogEnd = START) -> None:
        self.applied = applied
        self.end = applied
        self.high_watermark = UNKNOWN
        self._held: deque[EncodedBatch] = deque()
        self._suspect: int | None = None

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that the last response reported as committed was released."""
        return UNKNOWN < self.high_watermark <= self.applied.offset

    @property
    def is_holding(self) -> bool:
        """Whether records were received that are not committed yet."""
        return bool(self._held)

    def receive(self, response: FetchResponseFields) -> FetchResult:
        """Process one response."""
        if response.error:
            return FetchResult(error=response.error)
        if response.snapshot is not None:
            # Of the same log the snapshot would be newer than what was read, because the log begins after that.
            return FetchResult(snapshot=response.snapshot, rewritten=response.snapshot.offset < self.applied.offset)
        if response.diverging is not None:
            return self._truncate(response.diverging)
        corrupt = self._hold(response.records)
        self.high_watermark = response.high_watermark
        return FetchResult(batches=self._release(), corrupt=corrupt)

    def restart(self, at: LogEnd) -> None:
        """Continue at the end of a KRaft snapshot, or at the start of the log."""
        self.applied = self.end = at
        self.high_watermark = UNKNOWN
        self._held.clear()

    def _hold(self, data: bytes) -> bool:
        """Hold the new batches; return whether a corrupt one must be fetched again.

        Only a batch that is corrupt twice is corrupt in the log itself. It is accepted then, and decodes to an
        undecodable record, because the position could never pass it otherwise.
        """
        for batch in split(data):
            if batch.last_offset < self.end.offset:  # a response begins with the batch that contains the fetch offset
                continue
            if not is_intact(batch) and self._suspect != batch.base_offset:
                self._suspect = batch.base_offset
                return True
            self._held.append(batch)
            self.end = LogEnd(batch.last_offset + 1, batch.epoch)
        return False

    def _release(self) -> tuple[EncodedBatch, ...]:
        released = []
        while self._held and self._held[0].last_offset < self.high_watermark:
            batch = self._held.popleft()
            self.applied = LogEnd(batch.last_offset + 1, batch.epoch)
            released.append(batch)
        return tuple(released)

    def _truncate(self, diverging: LogEnd) -> FetchResult:
        """Drop the held batches that the leader does not have.

        With nothing held, the divergence is below ``applied``: committed records were lost (or the log was recreated),
        so reading starts over.
        """
        if not self._held:
            self.restart(START)
            return FetchResult(rewritten=True)
        while self._held and (self._held[-1].epoch > diverging.epoch or self._held[-1].last_offset >= diverging.offset):
            self._held.pop()
        last = self._held[-1] if self._held else None
        self.end = self.applied if last is None else LogEnd(last.last_offset + 1, last.epoch)
        return FetchResult()
