"""Where a reader of the metadata log stands, and what each answer does to it (KIP-595, KIP-630). No socket, no clock.

The leader also returns records that are not committed yet, because its followers need them. They are *held* until the
high watermark passes them, and dropped when the leader says that its log diverges before them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from streaming.sources.metadata_log.batches import Frame, is_intact, split
from streaming.sources.metadata_log.messages import FetchAnswer, LogEnd

NONE: Final = 0
START: Final = LogEnd(0, 0)
UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Step:
    """What one answer brought.

    Attributes:
        frames: batches that are committed now, in order.
        snapshot: the log no longer begins where we stand: load this snapshot instead.
        rewritten: what was applied is not in this log: everything must be read again.
        error: Kafka's error code, 0 for none.
        corrupt: a batch at ``end`` that does not match its checksum was left out, to be fetched again.
    """

    frames: tuple[Frame, ...] = ()
    snapshot: LogEnd | None = None
    rewritten: bool = False
    error: int = NONE
    corrupt: bool = False


class Position:
    """The reader's side of the protocol.

    Attributes:
        applied: end of what was given out as committed.
        end: end of what was received; the next Fetch begins here.
        high_watermark: end of what is committed, as last heard; -1 while unknown.
    """

    def __init__(self, applied: LogEnd = START) -> None:
        self.applied = applied
        self.end = applied
        self.high_watermark = UNKNOWN
        self._held: deque[Frame] = deque()
        self._suspect: int | None = None

    @property
    def is_caught_up(self) -> bool:
        """Tell whether everything committed, as last heard, was given out."""
        return UNKNOWN < self.high_watermark <= self.applied.offset

    def receive(self, answer: FetchAnswer) -> Step:
        """Take one answer."""
        if answer.error:
            return Step(error=answer.error)
        if answer.snapshot is not None:
            return Step(snapshot=answer.snapshot)
        if answer.diverging is not None:
            return self._truncate(answer.diverging)
        corrupt = self._hold(answer.records)
        self.high_watermark = answer.high_watermark
        return Step(frames=self._release(), corrupt=corrupt)

    def restart(self, at: LogEnd) -> None:
        """Stand at the end of a snapshot, or at the start of the log."""
        self.applied = self.end = at
        self.high_watermark = UNKNOWN
        self._held.clear()

    def _hold(self, data: bytes) -> bool:
        """Keep what is new. A broken batch is fetched once more: only if it comes again is it broken at its source."""
        for frame in split(data):
            if frame.last_offset < self.end.offset:
                continue
            if not is_intact(frame) and self._suspect != frame.base_offset:
                self._suspect = frame.base_offset
                return True
            self._held.append(frame)
            self.end = LogEnd(frame.last_offset + 1, frame.epoch)
        return False

    def _release(self) -> tuple[Frame, ...]:
        released = []
        while self._held and self._held[0].last_offset < self.high_watermark:
            frame = self._held.popleft()
            self.applied = LogEnd(frame.last_offset + 1, frame.epoch)
            released.append(frame)
        return tuple(released)

    def _truncate(self, diverging: LogEnd) -> Step:
        """Drop what the leader does not have; nothing left to drop means that committed records are gone."""
        if not self._held:
            self.restart(START)
            return Step(rewritten=True)
        while self._held and (self._held[-1].epoch > diverging.epoch or self._held[-1].last_offset >= diverging.offset):
            self._held.pop()
        last = self._held[-1] if self._held else None
        self.end = self.applied if last is None else LogEnd(last.last_offset + 1, last.epoch)
        return Step()
