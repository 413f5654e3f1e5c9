"""One log that is open for writing: lock, recovery, segments. Depends on frames, segments and the codec.

Invariants: one process writes a log at a time. A segment with content is never written again once its writer has ended:
after a crash an incomplete frame at its end is truncated (no reader has passed it), and writing continues in a new
segment with a new log id.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.bus.frames import HEADER_BYTES, MAGIC, BusFrame, DamagedRange, parse
from streaming.bus.segments import (
    Segment,
    folder_of,
    folders,
    new_log_id,
    segment_name,
    segments,
    size_and_time,
    source_of,
)
from streaming.contracts.codec import decode
from streaming.contracts.observations import SCHEMA_VERSION, Channel
from streaming.errors import BusReplaced, ConfigurationError, InvalidObservation, NewerFormat
from streaming.locks import Lock, try_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_LOCK: Final = ".lock"
NO_LOCKS: Final = (
    "this file system has no locks, so a second collector of one name is not refused, and ends the first one: start "
    "only one, or mount it with locks"
)
SECONDS_BETWEEN_LOOKS: Final = 5.0
"""On a file system without locks, between two looks for another writer."""


class WritableLog:
    """One log that is open for writing; ``sequence`` belongs to its last observation.

    On a file system without locks a second writer is not refused: it continues in a segment of its own, and the first
    one ends when it sees that segment, seconds later.

    Attributes:
        has_lock: the file system has locks.

    Raises:
        ConfigurationError: another process writes this log.
        NewerFormat: a newer program wrote the last observation, so its sequence is unknown.
        OSError: the disk refuses; abandon the log and open it again.
    """

    def __init__(self, folder: Path, segment_bytes: int, *, fsync: bool) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._fsync = fsync
        self._size = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._lock, self.has_lock = _locked(folder)
        self._looked_at = time.monotonic()
        try:
            self._base, self.sequence = recover(folder)
            before = [segment for segment in segments(folder) if segment.base < self._base]
            self._log_id = new_log_id(before[-1].log_id if before else None)
            self._take_over_empty()
            self._file = self._create()
        except (OSError, NewerFormat):
            os.close(self._lock)
            raise

    def append(self, data: bytes) -> None:
        """Write complete frames with one call; start a new segment first when the current one is full.

        Raises:
            ConfigurationError: another process writes this log, on a file system without locks.
            BusReplaced: the segment is not at its path any more, where readers look for it.
        """
        if not self.has_lock:
            self._look_for_another()
        self._require_segment()
        if self._size >= self._segment_bytes:
            full, self._base, self._size = self._file, self._base + self._size, 0
            self._file = self._create()
            os.close(full)
        self._write(data)
        self._size += len(data)

    def close(self) -> None:
        """Close and unlock the log."""
        os.close(self._file)
        os.close(self._lock)

    def abandon(self) -> None:
        """Close after an error; truncate an incomplete frame at the end if the disk still allows it.

        Complete frames stay, because a reader may have passed them already.
        """
        with suppress(OSError, NewerFormat):
            recover(self._folder)
        self.close()

    def _require_segment(self) -> None:
        """Refuse to write where no reader looks, be it one more record: it would be acknowledged, and lost."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._file)):
                return
        if not self.has_lock:  # another process may have taken it over
            self._looked_at = -SECONDS_BETWEEN_LOOKS
            self._look_for_another()
        raise BusReplaced(
            f"{self._path} was removed or replaced while it was written, so the job may lack what was published last, "
            "and everything is reported again: keep other programs away from bus.directory"
        )

    def _look_for_another(self) -> None:
        if time.monotonic() - self._looked_at < SECONDS_BETWEEN_LOOKS:
            return
        self._looked_at = time.monotonic()
        newest = segments(self._folder)[-1:]
        if newest and (newest[0].base, newest[0].log_id) != (self._base, self._log_id):
            raise _of_another(self._folder)

    def _take_over_empty(self) -> None:
        """Rename the newest segment if a crash left it empty, so that it carries our log id."""
        newest = segments(self._folder)[-1:]
        if newest and newest[0].base == self._base:
            newest[0].path.rename(self._folder / segment_name(self._base, self._log_id))

    def _create(self) -> int:
        """Open the segment of the current base."""
        self._path = self._folder / segment_name(self._base, self._log_id)
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if self._fsync:
            sync_file(self._folder)
        return file

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        if self._fsync:
            os.fsync(self._file)


def recover(folder: Path) -> tuple[int, int]:
    """Repair a log after a crash.

    An incomplete frame at the end is truncated: it was never acknowledged, and no reader has passed it. Other damage
    stays, and readers report it; its sequence number is skipped, so that the job detects the gap.

    Returns:
        the position where writing continues, and the sequence of the last observation.

    Raises:
        NewerFormat: a newer program wrote the last observation; nothing was truncated.
    """
    log = segments(folder)
    if not log:
        return 0, 0
    newest = log[-1]
    data = newest.path.read_bytes()
    items, _ = parse(data, newest.base, closed=True)
    end = newest.base + len(data)
    is_torn = bool(items) and isinstance(items[-1], DamagedRange) and is_incomplete(items[-1].raw)
    if is_torn:
        end = items.pop().position
    try:
        sequence = _last_sequence(items, log[:-1])
    except NewerFormat:
        raise NewerFormat(
            f"{folder} ends with a record of a newer isrwatch, this program writes format {SCHEMA_VERSION}; "
            "upgrade isrwatch collect"
        ) from None
    if is_torn:
        os.truncate(newest.path, end - newest.base)
    return end, sequence


def is_incomplete(raw: bytes) -> bool:
    """Return whether the last bytes of a file are the start of a frame whose rest is missing."""
    if len(raw) < HEADER_BYTES:
        return MAGIC.startswith(raw[: len(MAGIC)])
    length = int.from_bytes(raw[len(MAGIC) : len(MAGIC) + 4])
    return raw.startswith(MAGIC) and HEADER_BYTES + length > len(raw)


def _last_sequence(items: Sequence[BusFrame | DamagedRange], older: Sequence[Segment]) -> int:
    """Return the sequence of the last observation, plus one if damage follows it, which may have been the next one."""
    skipped = 0
    while True:
        for item in reversed(items):
            if isinstance(item, DamagedRange):
                skipped = 1
                continue
            with suppress(InvalidObservation):
                return decode(item.payload).sequence + skipped
        if not older:
            return skipped
        last, older = older[-1], older[:-1]
        items = parse(last.path.read_bytes(), last.base, closed=True)[0]


def _locked(folder: Path) -> tuple[int, bool]:
    """Lock a log for this process; return the open lock, and whether the file system has locks."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        outcome = try_lock(lock)
    except OSError:
        os.close(lock)
        raise
    if outcome is Lock.OF_ANOTHER:
        os.close(lock)
        raise _of_another(folder)
    return lock, outcome is Lock.HELD


def _of_another(folder: Path) -> ConfigurationError:
    return ConfigurationError(
        f"another process already writes the log of {source_of(folder.name)} in {folder.parent}: stop it, or give "
        "this collector another name (collect.collector)"
    )


def refuse_written(bus: Path, sources: Iterable[str]) -> None:
    """Raise ``ConfigurationError`` if another process writes one of these logs; called before anything is started."""
    for source in sources:
        for folder in bus.glob(f"*/{folder_of(source)}"):
            os.close(_locked(folder)[0])


def sync_file(path: Path) -> None:
    """Sync a file or folder to disk; ignore one that was deleted meanwhile."""
    with suppress(FileNotFoundError):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


# Limits of the bus: what is deleted when it exceeds its limit, and when its disk is almost full.
#
# A bus grows while no job applies it. Newer samples replace older ones, so samples are deleted first, and never take
# more than a share. Replication records are deleted last: the gap in their sequence numbers shows the job that they are
# missing.


_SAMPLES_SHARE: Final = 4
_SEGMENTS_IN_LIMIT: Final = 32
_LOOKS_IN_LIMIT: Final = 64
_RESERVED_SHARE: Final = 20
_RESERVED_BYTES: Final = 256 << 20


class RemovedBytes(NamedTuple):
    """Bytes that were deleted although they may not have been applied."""

    samples: int
    replication: int


class _ClosedSegment(NamedTuple):
    """A segment that is not the newest of its log."""

    written_at: int
    size: int
    segment: Segment


class BusCapacity:
    """Keeps all segments of a bus within a limit, except the newest of each log. Several processes may do so."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory, self._max_bytes = directory, max_bytes
        self._written = max_bytes

    def segment_bytes(self, configured: int) -> int:
        """Return the size of a segment, small enough that there are always some to delete."""
        return min(configured, max(1, self._max_bytes // _SEGMENTS_IN_LIMIT))

    def wrote(self, size: int) -> RemovedBytes:
        """Count written bytes; once in a while check the whole bus, and delete what exceeds the limit."""
        self._written += size
        if self._written * _LOOKS_IN_LIMIT < self._max_bytes:
            return RemovedBytes(0, 0)
        self._written = 0
        samples = self._remove_samples(self._max_bytes // _SAMPLES_SHARE)
        excess = sum(_sizes(self._directory, *Channel)) - self._max_bytes
        if excess > 0:
            samples += self._remove_samples(0, at_most=excess)
            excess = sum(_sizes(self._directory, *Channel)) - self._max_bytes
        return RemovedBytes(samples, _remove(self._closed(Channel.REPLICATION), excess))

    def remove_samples(self) -> int:
        """Delete all samples but the newest, because the disk is full; return how many bytes that freed."""
        return self._remove_samples(0)

    def has_space(self) -> bool:
        """Return whether the disk has more than the reserve that the job needs to commit, and so to free bus space."""
        try:
            disk = os.statvfs(self._directory)
        except FileNotFoundError:
            return True
        size, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        return free > min(_RESERVED_BYTES, size // _RESERVED_SHARE)

    def _remove_samples(self, share: int, at_most: int | None = None) -> int:
        excess = sum(_sizes(self._directory, Channel.SAMPLES)) - share
        return _remove(self._closed(Channel.SAMPLES), excess if at_most is None else min(excess, at_most))

    def _closed(self, channel: Channel) -> list[_ClosedSegment]:
        """List the segments that may be deleted, oldest first; a writer recovers from the newest with content."""
        closed = []
        for log in _logs(self._directory, channel):
            with_sizes = [(segment, *size_and_time(str(segment.path))) for segment in segments(log)]
            newest = max((segment.base for segment, size, _ in with_sizes if size > 0), default=0)
            closed += [
                _ClosedSegment(time, size, segment) for segment, size, time in with_sizes if segment.base < newest
            ]
        return sorted(closed)


def _remove(closed: list[_ClosedSegment], excess: int) -> int:
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
    stamps = (size_and_time(str(segment.path)) for log in _logs(directory, *channels) for segment in segments(log))
    return (max(size, 0) for size, _ in stamps)
