"""The log of one replica: offsets and leader epochs. Knows no leaders, no ISR, no time.

A record is an offset and the epoch of the leader that wrote it; so the epoch cache (epoch, first offset) *is* the log,
however long it is (KIP-101, KIP-279). Batches that carry more (a producer, keys, a marker) are kept next to it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.model.storage.producer_state import ProducerState
from streaming.model.storage.segments import DEFAULT_CONFIG, LogConfig, Segment

if TYPE_CHECKING:
    from streaming.model.storage.batch import Batch

NO_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1
_BASE_OFFSET: Final = attrgetter("base_offset")
_END_OFFSET: Final = attrgetter("end_offset")

EpochEntry = tuple[int, int]


class Log:
    """Offsets ``start`` (inclusive) to ``end`` (exclusive: the next to write), and the epoch cache.

    ``epochs``: (leader epoch, first offset of that epoch). Invariant: strictly increasing in both columns, no epoch
    newer than the partition's; two logs that hold the same record, by offset and epoch, hold the same before it.
    ``batches`` has those that carry more than anonymous records, ordered by offset; ``producers`` is what
    follows from them. ``flushed`` is the recovery point, ≤ ``end``: what lies below survives a loss of power. The last
    of ``segments`` is the active one. ``cleaned`` is the first offset that compaction has not seen.
    """

    __slots__ = (
        "_config",
        "_segment_offsets",
        "batches",
        "cleaned",
        "end",
        "epochs",
        "flushed",
        "producers",
        "segments",
        "start",
    )

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.flushed = self.cleaned = 0
        self.epochs: list[EpochEntry] = []
        self.batches: list[Batch] = []
        self.segments = [Segment(0)]
        self.config = DEFAULT_CONFIG
        self.producers = ProducerState()

    @property
    def last_epoch(self) -> int:
        """Epoch of the newest entry, ``NO_EPOCH`` for an empty cache."""
        return self.epochs[-1][0] if self.epochs else NO_EPOCH

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """Note that ``epoch`` starts at ``offset``; an epoch that wrote nothing there gives way.

        Even a later one does: who led with an empty log, and follows now, takes records of earlier epochs
        (``LeaderEpochFileCache.maybeTruncateNonMonotonicEntries``).
        """
        if self.epochs and self.epochs[-1][0] == epoch:  # nearly always: the epoch continues
            return
        while self.epochs and self.epochs[-1][1] >= offset and self.epochs[-1][0] != epoch:
            self.epochs.pop()
        if epoch > self.last_epoch:
            self.epochs.append((epoch, offset))

    def epoch_at(self, offset: int) -> int:
        """Give the epoch in which the record at ``offset`` was written."""
        return max(epoch for epoch, first in self.epochs if first <= offset)

    def append(self, count: int, timestamp_ms: int = 0) -> None:
        """Leader: write ``count`` anonymous records in the current epoch."""
        self._write(self.end + count, timestamp_ms)

    def append_batch(self, batch: Batch) -> Batch:
        """Leader: write a batch in the current epoch; give it as it stands in the log."""
        batch = batch._replace(base_offset=self.end)
        self._write(batch.end_offset, batch.timestamp_ms)
        self.batches.append(batch)
        self.producers.written(batch)
        return batch

    def append_fetched(
        self, end: int, epochs: tuple[EpochEntry, ...], batches: tuple[Batch, ...] = (), timestamp_ms: int = 0
    ) -> None:
        """Follower: take over what the leader sent, up to ``end``."""
        self._write(end, timestamp_ms)
        for epoch, offset in epochs:
            self.begin_epoch(epoch, offset)
        if batches:
            self.batches += batches
        for batch in batches:
            self.producers.written(batch)

    # -------------------------------------------------------------- segments

    @property
    def config(self) -> LogConfig:
        """Configuration of this log."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_offsets = config.segment_offsets

    def _write(self, end: int, timestamp_ms: int) -> None:
        """Records up to ``end`` go into the active segment, or into a new one if it is full or old (LogSegment)."""
        active, config = self.segments[-1], self._config
        base_offset = active.base_offset
        if self.end == base_offset:
            active.begin(timestamp_ms)
        elif end - base_offset > self._segment_offsets or timestamp_ms - active.first_timestamp_ms > config.segment_ms:
            self.roll().begin(timestamp_ms)
        elif timestamp_ms > active.largest_timestamp_ms:
            active.largest_timestamp_ms = timestamp_ms
        self.end = end
        if end - self.flushed >= config.flush_interval_records:
            self.flushed = end

    def roll(self) -> Segment:
        """Begin a new segment; what came before it is flushed."""
        self.flushed = self.end
        self.segments.append(Segment(self.end))
        return self.segments[-1]

    def segment_of(self, offset: int) -> Segment:
        """Give the segment that has ``offset``."""
        active = self.segments[-1]
        if active.base_offset <= offset:  # nearly always
            return active
        return next(segment for segment in reversed(self.segments) if segment.base_offset <= offset)

    def segment_ends(self) -> list[int]:
        """Give the end offset of each segment."""
        return [*(segment.base_offset for segment in self.segments[1:]), self.end]

    def sizes(self) -> list[int]:
        """Number of records in each segment."""
        ends = self.segment_ends()
        return [end - segment.base_offset - segment.removed for segment, end in zip(self.segments, ends, strict=True)]

    # -------------------------------------------------------------- reading

    def read_end(self, offset: int, max_records: int) -> int:
        """Give the end of a read that begins at ``offset``: no batch is split, and the first one is read anyway.

        Anonymous records have no batches to respect.
        """
        if self.end - offset <= max_records:  # nearly always: who fetches keeps up
            return self.end
        end = offset + max_records
        if not self.batches:
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

    def batches_with(self, offset: int, end: int) -> tuple[Batch, ...]:
        """Give the batches that have offsets in ``[offset, end)``, whole, as a consumer gets them."""
        first = bisect_right(self.batches, offset, key=_END_OFFSET)
        return tuple(self.batches[first : bisect_left(self.batches, end, key=_BASE_OFFSET)])

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
        self.cleaned = min(self.cleaned, self.end)
        while self.epochs and self.epochs[-1][1] >= self.end:
            self.epochs.pop()
        while len(self.segments) > 1 and self.segments[-1].base_offset > self.end:
            self.segments.pop()
        if self.segments[0].base_offset > self.end:
            self.segments = [Segment(self.end)]
        kept = len(self.batches)
        while kept and self.batches[kept - 1].end_offset > self.end:
            kept -= 1
        if kept < len(self.batches):
            del self.batches[kept:]
            self.producers.rebuild(self.batches)

    def restart_at(self, offset: int) -> None:
        """Drop everything; the next record is at ``offset``."""
        self.start = self.end = self.flushed = self.cleaned = offset
        self.segments = [Segment(offset)]
        self.epochs.clear()
        self.batches.clear()
        self.producers.rebuild(())

    def start_at(self, offset: int) -> None:
        """Drop every record below ``offset``; the newest epoch that began there or before begins there now."""
        self.start = offset
        self.flushed = max(self.flushed, offset)
        self.cleaned = max(self.cleaned, offset)
        while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
            del self.segments[0]
        below = [epoch for epoch, first in self.epochs if first <= offset]
        if below:
            self.epochs[: len(below)] = [(below[-1], offset)]
        self.batches = [batch for batch in self.batches if batch.end_offset > offset]

    def sync(self) -> None:
        """Everything that was appended is on the disk now."""
        self.flushed = self.end


# Sets of records as ranges. In this model a record is an offset and the leader epoch that wrote it.


class Span(NamedTuple):
    """The records of one leader epoch with offsets ``[start, end)``."""

    epoch: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}) of epoch {self.epoch}"


class Records:
    """A set of records; neighbours are joined."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, span: Span) -> None:
        """Take a range in."""
        last = self.spans[-1] if self.spans else None
        if last is not None and (last.epoch, last.end) == (span.epoch, span.start):
            self.spans[-1] = last._replace(end=span.end)
        else:
            self.spans.append(span)

    def missing_from(self, log: Log) -> list[Span]:
        """Give what a log does not hold."""
        return [gap for span in self.spans if not holds(log, span) for gap in _gaps(log, span)]

    def keep_only(self, log: Log) -> None:
        """Take out what a log does not hold."""
        kept = [part for span in self.spans for part in spans_of(log, span.start, span.end) if part.epoch == span.epoch]
        self.spans = kept

    def __len__(self) -> int:
        """Count the records."""
        return sum(span.end - span.start for span in self.spans)


def spans_of(log: Log, start: int, end: int) -> list[Span]:
    """Give the records ``[start, end)`` of a log."""
    start, end = max(start, log.start), min(end, log.end)
    if start >= end:
        return []
    entries = log.epochs_between(start, end)
    ends = (*(offset for _, offset in entries[1:]), end)
    return [Span(epoch, offset, until) for (epoch, offset), until in zip(entries, ends, strict=True)]


def holds(log: Log, span: Span) -> bool:
    """Return whether a log has every record of a range; what retention deleted counts as held."""
    start = max(span.start, log.start)
    if start >= span.end:
        return True
    return span.end <= log.end and log.epochs_between(start, span.end) == ((span.epoch, start),)


def _gaps(log: Log, span: Span) -> list[Span]:
    """Give what a log lacks of a range; an epoch is in one piece in every log."""
    held = next((part for part in spans_of(log, span.start, span.end) if part.epoch == span.epoch), None)
    if held is None:
        return [span]
    gaps = (span._replace(end=held.start), span._replace(start=held.end))
    return [gap for gap in gaps if max(gap.start, log.start) < gap.end]


def first_difference(one: Log, other: Log, below: int) -> int | None:
    """Give the first offset below ``below`` at which both logs have a record, but not the same."""
    start, end = max(one.start, other.start), min(one.end, other.end, below)
    if start >= end or one.epochs == other.epochs or one.epochs_between(start, end) == other.epochs_between(start, end):
        return None
    pairs = zip(_breaks(one, start, end), _breaks(other, start, end), strict=False)
    return next((min(a[1], b[1]) for a, b in pairs if a != b), end)


def _breaks(log: Log, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Give (epoch, first offset) of each run, closed by the end: two equal prefixes part where the first run ends."""
    return (*log.epochs_between(start, end), (-1, end))
