"""How much the bus may hold: what goes when it holds more, and when its disk is as good as full.

A bus grows while nobody applies it. Newer samples replace older ones, so they go first, and never take more than a
share. Records of replication go last: the job then notices from their numbers that they are missing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.bus.segments import Segment, folders, segments
from streaming.contracts.observations import Channel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAMPLES_SHARE: Final = 4
"""Samples take at most a fourth of the limit."""
_SEGMENTS_IN_LIMIT: Final = 32
_LOOKS_IN_LIMIT: Final = 64
_RESERVED_SHARE: Final = 20
_RESERVED_BYTES: Final = 256 << 20


class Removed(NamedTuple):
    """Bytes that were deleted although nobody may have applied them."""

    samples: int
    replication: int


class _Closed(NamedTuple):
    """A segment that is not its log's newest one, and its size."""

    written_at: int
    size: int
    segment: Segment


class BusCapacity:
    """Keeps a bus within its limit. Several processes may do so at once."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        """Look at nothing yet.

        Args:
            directory: the bus.
            max_bytes: what all segments together may take. Of each log the newest segment stays in any case.
        """
        self._directory, self._max_bytes = directory, max_bytes
        self._written = max_bytes

    def segment_bytes(self, configured: int) -> int:
        """Return the size of a segment: of small ones, so that there are some to delete."""
        return min(configured, max(1, self._max_bytes // _SEGMENTS_IN_LIMIT))

    def wrote(self, size: int) -> Removed:
        """Count what was written; look at the whole bus once in a while, and delete what is too much."""
        self._written += size
        if self._written * _LOOKS_IN_LIMIT < self._max_bytes:
            return Removed(0, 0)
        self._written = 0
        samples = self._remove_samples(self._max_bytes // SAMPLES_SHARE)
        excess = sum(_sizes(self._directory, *Channel)) - self._max_bytes
        if excess > 0:
            samples += self._remove_samples(0, at_most=excess)
            excess = sum(_sizes(self._directory, *Channel)) - self._max_bytes
        return Removed(samples, _remove(self._closed(Channel.REPLICATION), excess))

    def remove_samples(self) -> int:
        """Delete all samples but the newest: the disk is full. Return how many bytes they were."""
        return self._remove_samples(0)

    def has_space(self) -> bool:
        """Return whether the disk has more than the reserve that the job needs to commit, and so to free the bus."""
        try:
            disk = os.statvfs(self._directory)
        except FileNotFoundError:
            return True
        size, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        return free > min(_RESERVED_BYTES, size // _RESERVED_SHARE)

    def _remove_samples(self, share: int, at_most: int | None = None) -> int:
        channels = [channel for channel in Channel if channel is not Channel.REPLICATION]
        excess = sum(_sizes(self._directory, *channels)) - share
        return _remove(self._closed(*channels), excess if at_most is None else min(excess, at_most))

    def _closed(self, *channels: Channel) -> list[_Closed]:
        """List the segments that may go, the oldest first; a writer recovers from the newest that is not empty."""
        closed = []
        for log in _logs(self._directory, *channels):
            with_sizes = [(segment, *_size_and_time(segment)) for segment in segments(log)]
            newest = max((segment.base for segment, size, _ in with_sizes if size), default=0)
            closed += [_Closed(time, size, segment) for segment, size, time in with_sizes if segment.base < newest]
        return sorted(closed)


def _remove(closed: list[_Closed], excess: int) -> int:
    removed = 0
    for each in closed:
        if removed >= excess:
            break
        each.segment.path.unlink(missing_ok=True)
        removed += each.size
    return removed


def _logs(directory: Path, *channels: Channel) -> Iterator[Path]:
    return (directory / channel / folder for channel in channels for folder in folders(directory / channel))


def _sizes(directory: Path, *channels: Channel) -> Iterator[int]:
    return (_size_and_time(segment)[0] for log in _logs(directory, *channels) for segment in segments(log))


def _size_and_time(segment: Segment) -> tuple[int, int]:
    with suppress(FileNotFoundError):
        status = segment.path.stat()
        return status.st_size, status.st_mtime_ns
    return 0, 0
