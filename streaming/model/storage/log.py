"""The log of one replica: offsets and leader epochs. Knows no leaders, no ISR, no time.

A record is an offset and the epoch of the leader that wrote it; so the epoch cache (epoch, first offset) *is* the log,
however long it is (KIP-101, KIP-279). Batches that carry more (a producer, keys, a marker) are kept beside it.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from streaming.model.storage.producer_state import ProducerState

if TYPE_CHECKING:
    from streaming.model.storage.batch import Batch

NO_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1
_BASE_OFFSET: Final = attrgetter("base_offset")

EpochEntry = tuple[int, int]


class Log:
    """Offsets ``start`` (inclusive) to ``end`` (exclusive: the next to write), and the epoch cache.

    ``epochs`` is strictly increasing in both columns: (epoch, first offset of that epoch). ``batches`` has those that
    carry more than anonymous records, in the order of their offsets; ``producers`` is what follows from them.
    ``flushed`` is the recovery point: what lies below survives a loss of power.
    """

    __slots__ = ("batches", "end", "epochs", "flushed", "producers", "start")

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.flushed = 0
        self.epochs: list[EpochEntry] = []
        self.batches: list[Batch] = []
        self.producers = ProducerState()

    @property
    def last_epoch(self) -> int:
        """Epoch of the newest entry, ``NO_EPOCH`` for an empty cache."""
        return self.epochs[-1][0] if self.epochs else NO_EPOCH

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """Note that ``epoch`` starts at ``offset``; an epoch that wrote nothing there gives way."""
        if epoch <= self.last_epoch:
            return
        while self.epochs and self.epochs[-1][1] >= offset:
            self.epochs.pop()
        self.epochs.append((epoch, offset))

    def epoch_at(self, offset: int) -> int:
        """Give the epoch in which the record at ``offset`` was written."""
        return max(epoch for epoch, first in self.epochs if first <= offset)

    def append(self, count: int) -> None:
        """Leader: write ``count`` anonymous records in the current epoch."""
        self.end += count

    def append_batch(self, batch: Batch) -> Batch:
        """Leader: write a batch in the current epoch; give it as it stands in the log."""
        batch = batch._replace(base_offset=self.end)
        self.batches.append(batch)
        self.end = batch.end_offset
        self.producers.written(batch)
        return batch

    def append_fetched(self, end: int, epochs: tuple[EpochEntry, ...], batches: tuple[Batch, ...] = ()) -> None:
        """Follower: take over what the leader sent, up to ``end``."""
        for epoch, offset in epochs:
            self.begin_epoch(epoch, offset)
        self.batches += batches
        for batch in batches:
            self.producers.written(batch)
        self.end = end

    def read_end(self, offset: int, max_records: int) -> int:
        """Give the end of a read that begins at ``offset``: no batch is split, and the first one is read anyway.

        Anonymous records have no batches to respect.
        """
        end = min(self.end, offset + max_records)
        if end == self.end or not self.batches:
            return end
        last = bisect_left(self.batches, end, key=_BASE_OFFSET) - 1
        if last < 0 or self.batches[last].end_offset <= end:
            return end
        batch = self.batches[last]
        return batch.base_offset if batch.base_offset > offset else batch.end_offset

    def batches_between(self, offset: int, end: int) -> tuple[Batch, ...]:
        """Give the batches that begin in ``[offset, end)``."""
        if not self.batches or self.batches[-1].base_offset < offset:
            return ()
        first, last = (bisect_left(self.batches, at, key=_BASE_OFFSET) for at in (offset, end))
        return tuple(self.batches[first:last])

    def epochs_between(self, offset: int, end: int) -> tuple[EpochEntry, ...]:
        """Give the epochs of the records in ``[offset, end)``, each with its first offset there."""
        if self.epochs[-1][1] <= offset:  # nearly always: a follower reads the current epoch
            return ((self.epochs[-1][0], offset),)
        later = [entry for entry in self.epochs if offset < entry[1] < end]
        floor = [entry[0] for entry in self.epochs if entry[1] <= offset]
        return (*([(floor[-1], offset)] if floor else []), *later)

    def end_offset_for(self, epoch: int) -> EpochEntry:
        """Tell where ``epoch`` ended: (largest epoch not above it, its end offset); OffsetsForLeaderEpoch.

        (-1, -1) if the epoch is undefined or newer than everything here.
        """
        if epoch == NO_EPOCH or not self.epochs or epoch > self.last_epoch:
            return (NO_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.last_epoch:
            return (epoch, self.end)
        above = next(entry for entry in self.epochs if entry[0] > epoch)
        below = [entry[0] for entry in self.epochs if entry[0] <= epoch]
        return (below[-1] if below else epoch, above[1])

    def truncate(self, offset: int) -> None:
        """Drop every record at or after ``offset``, and epochs that have no record below it (KAFKA-10706)."""
        self.end = min(self.end, offset)
        self.start = min(self.start, self.end)
        self.flushed = min(self.flushed, self.end)
        while self.epochs and self.epochs[-1][1] >= self.end:
            self.epochs.pop()
        kept = len(self.batches)
        while kept and self.batches[kept - 1].end_offset > self.end:
            kept -= 1
        if kept < len(self.batches):
            del self.batches[kept:]
            self.producers.rebuild(self.batches)

    def restart_at(self, offset: int) -> None:
        """Drop everything; the next record is at ``offset``."""
        self.start = self.end = self.flushed = offset
        self.epochs.clear()
        self.batches.clear()
        self.producers.rebuild(())

    def start_at(self, offset: int) -> None:
        """Drop every record below ``offset``; the newest epoch that began there or before begins there now."""
        self.start = offset
        self.flushed = max(self.flushed, offset)
        below = [epoch for epoch, first in self.epochs if first <= offset]
        if below:
            self.epochs[: len(below)] = [(below[-1], offset)]
        self.batches = [batch for batch in self.batches if batch.end_offset > offset]

    def sync(self) -> None:
        """Everything that was appended is on the disk now."""
        self.flushed = self.end
