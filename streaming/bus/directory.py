"""The default bus: a directory of append-only segments on a local or shared file system.

    <bus>/<channel>/<source>/<20-digit base position>-<log id>.log

One process writes a log at a time, any number read it.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from streaming.bus.frames import BusFrame, DamagedRange, encode_frame, last_frame_start
from streaming.bus.log import BusCapacity, RemovedBytes, WritableLog, sync_file
from streaming.bus.segments import (
    PIECE,
    LastLook,
    Segment,
    Stamp,
    final_position,
    folder_of,
    folders,
    goes_on_from,
    read_segment,
    replaced,
    segments,
    size_and_time,
    source_of,
)
from streaming.contracts.codec import encode
from streaming.contracts.identifiers import NOWHERE, LogPosition
from streaming.errors import FULL, BusFull, BusReplaced, ConfigurationError, IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from streaming.contracts.observations import Channel, Observation


class DirectoryPublisher:
    """Writes the logs below a directory, which is created when missing.

    Without ``fsync`` nothing is synced to disk before :meth:`publish` returns. ``max_bytes`` limits the whole bus.
    """

    def __init__(
        self, directory: Path, *, segment_bytes: int, fsync: bool = True, max_bytes: int | None = None
    ) -> None:
        self._directory = directory
        self._capacity = BusCapacity(directory, max_bytes) if max_bytes is not None else None
        self._segment_bytes = segment_bytes if self._capacity is None else self._capacity.segment_bytes(segment_bytes)
        self._fsync = fsync
        self._removed = RemovedBytes(0, 0)
        self._logs: dict[tuple[str, str], WritableLog] = {}

    def publish(self, observations: Sequence[Observation]) -> None:
        """Write each observation durably to the log of its channel and source, with one write per log.

        Each gets the next ``sequence`` of its log, whatever value it had before.

        Raises:
            BusReplaced: the log was removed meanwhile; the next call begins another one.
            IsrwatchError: none or only some of them could be written. Publish all of them again: the job recognises
                duplicates.
        """
        by_log: dict[tuple[Channel, str], list[Observation]] = {}
        for observation in observations:
            by_log.setdefault((observation.channel, observation.source), []).append(observation)
        for (channel, source), group in by_log.items():
            with self._writing(channel, source) as log:
                first = log.sequence + 1
                numbered = (replace(item, sequence=number) for number, item in enumerate(group, start=first))
                self._append(log, b"".join(encode_frame(encode(item)) for item in numbered))
                log.sequence += len(group)

    def publish_raw(self, channel: Channel, source: str, payload: bytes) -> None:
        """Write bytes verbatim, without a sequence number; raises as :meth:`publish` does."""
        with self._writing(channel, source) as log:
            self._append(log, encode_frame(payload))

    def take_removed(self) -> RemovedBytes:
        """Return how much was deleted since the last call, possibly before the job had applied it."""
        removed, self._removed = self._removed, RemovedBytes(0, 0)
        return removed

    def _append(self, log: WritableLog, data: bytes) -> None:
        if self._capacity is not None and not self._capacity.has_space():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        log.append(data)
        if self._capacity is not None:
            samples, replication = self._capacity.wrote(len(data))
            self._removed = RemovedBytes(self._removed.samples + samples, self._removed.replication + replication)

    def close(self) -> None:
        """Close and unlock every log, so that another publisher can write them."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    @contextmanager
    def _writing(self, channel: Channel, source: str) -> Iterator[WritableLog]:
        """Return a log, opened on first use and again after a disk error, which leaves its sequence unknown."""
        try:
            if (channel, source) not in self._logs:
                folder = self._directory / channel / folder_of(source)
                self._logs[channel, source] = WritableLog(folder, self._segment_bytes, fsync=self._fsync)
            yield self._logs[channel, source]
        except BusReplaced:
            self._logs.pop((channel, source)).close()
            raise
        except OSError as error:
            if log := self._logs.pop((channel, source), None):
                log.abandon()
            if error.errno in FULL:
                with suppress(OSError):  # what cannot be deleted either waits for the job
                    samples = 0 if self._capacity is None else self._capacity.remove_samples()
                    self._removed = RemovedBytes(self._removed.samples + samples, self._removed.replication)
                raise BusFull(
                    f"the disk of the bus {self._directory} is full; free space, or give the job time to: everything "
                    "published before is safe"
                ) from error
            raise IsrwatchError(
                f"cannot write the bus below {self._directory}: {error.strerror}; free space, repair the disk, or "
                "point bus.directory (--bus) at a folder that can be written; everything published before is safe"
            ) from error


class DirectoryReader:
    """Reads the logs below a directory, concurrently with a writer and other readers.

    Invariant: the end of a log is a *final* position: before it there are only complete frames with a valid checksum,
    and damage that such a frame or a newer segment follows. The rest of the newest segment may still be in the writer's
    buffers, so it is neither data nor damage yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # By channel: newest segment -> (size and modification time at the last look, its final position).
        self._final: dict[Channel, dict[Path, LastLook]] = {}
        # By channel: the paths that a write changes, and their sizes and times at the last look.
        self._watched: dict[Channel, tuple[tuple[str, ...], tuple[Stamp, ...]]] = {}

    def logs(self, channel: Channel) -> list[str]:
        """List the sources that have a log on this channel, sorted.

        Raises:
            ConfigurationError: the bus is a file.
        """
        try:
            return sorted(source_of(folder) for folder in folders(self._directory / channel))
        except NotADirectoryError:
            raise ConfigurationError(
                f"the bus {self._directory} is not a folder; point bus.directory (--bus) at one"
            ) from None

    def unread(self, channel: Channel) -> int:  # noqa: ARG002 - of the protocol
        """Return 0: each log is known before it is read, and says itself how much of it is unread."""
        return 0

    def start_positions(self, channel: Channel) -> dict[str, int]:
        """Return the oldest position of each log."""
        return {source: log[0].base for source in self.logs(channel) if (log := self.segments(channel, source))}

    def end_positions(self, channel: Channel) -> dict[str, int]:
        """Return the position after the last complete frame of each log.

        Costs a directory listing and a stat per log; reads only what was appended since the last call.
        """
        newest = {source: self.segments(channel, source)[-1:] for source in self.logs(channel)}
        paths = [last[0].path for last in newest.values() if last]
        places = [self._directory / channel, *(place for path in paths for place in (path.parent, path))]
        watched = tuple(map(str, places))
        stamps = tuple(map(size_and_time, watched))  # before reading: anything written meanwhile counts as new
        last_look = self._final.get(channel, {})
        final = {source: final_position(last[0], last_look) for source, last in newest.items() if last}
        self._final[channel] = dict(zip(paths, final.values(), strict=True))
        self._watched[channel] = watched, stamps
        return {source: position for source, (_, position) in final.items()}

    def has_moved(self, channel: Channel) -> bool:
        """Return whether a log was created, written or cut since the last :meth:`end_positions`; two stats per log.

        A segment created in the same tick of the disk's clock as that call is noticed only at its first record.
        """
        watched, stamps = self._watched.get(channel, ((), None))
        return tuple(map(size_and_time, watched)) != stamps

    def bytes_behind(self, channel: Channel, source: str, position: int) -> tuple[int, int]:
        """Return how far the job is behind, given the position of the last record that was applied.

        Returns:
            the end of the log, and the number of bytes between that record and the end.
        """
        end = self.end_positions(channel).get(source, 0)
        start = self.start_positions(channel).get(source, end)
        if start <= position < end:
            start = next(item.end for item in self.read(channel, source, position, end))
        return end, max(end - start, 0)

    def flush(self, channel: Channel) -> None:
        """Sync the logs of a channel to disk: readers see records before the writer has synced them."""
        for source in self.logs(channel):
            for segment in self.segments(channel, source)[-2:]:  # the writer has synced all earlier ones
                sync_file(segment.path)

    def segments(self, channel: Channel, source: str) -> list[Segment]:
        """List a log's segments, oldest first."""
        return segments(self._directory / channel / folder_of(source))

    def is_in_log(self, channel: Channel, source: str, at: LogPosition) -> bool:
        """Return whether a log still contains a position: it was not cut, replaced, or restored and continued."""
        ours = [segment for segment in self.segments(channel, source) if segment.log_id == at.log_id]
        return bool(ours) and at.position <= ours[-1].limit

    def last_common(self, channel: Channel, source: str, applied: LogPosition) -> LogPosition:
        """Return the last record that both the log and its reader have.

        That is the applied one, unless the log was replaced, restored from a copy, or cut. If the log is missing,
        nothing is known about it, and the applied one is returned.

        Returns:
            the record; ``NOWHERE`` if there is none that both certainly have.
        """
        log = self.segments(channel, source)
        ours = [segment for segment in log if segment.log_id == applied.log_id]
        if not log or applied.position < 0 or (ours and applied.position < ours[-1].limit):
            return applied  # records deleted after it show as a gap in the sequence numbers
        if not ours and log[0].base > applied.position and goes_on_from(log[0].log_id, applied.log_id):
            return applied  # all segments of that run were deleted, and the next run continued after it
        before = [segment for segment in log if goes_on_from(applied.log_id, segment.log_id)]  # a copy ends before it
        for segment in (*reversed(ours), *reversed(before)):
            items = read_segment(segment, segment.base, segment.limit)
            if frames := [item.position for item in items if isinstance(item, BusFrame)]:
                return LogPosition(frames[-1], segment.log_id)
        return NOWHERE

    def read(
        self, channel: Channel, source: str, start: int, end: int, log_id: int | None = None
    ) -> Iterator[BusFrame | DamagedRange]:
        """Read everything from one position up to another, in order; every segment must have a ``log_id`` if given.

        Raises:
            IsrwatchError: segments after ``start`` were deleted, or the log was replaced.
        """
        log = self.segments(channel, source)
        oldest = log[0].base if log else end
        if start < min(oldest, end):
            raise IsrwatchError(
                f"segments up to position {oldest} of {channel}/{source} below {self._directory} were deleted, but "
                f"reading was to continue at {start}: restore them, or start with a new checkpoint and new tables"
            )
        for segment in log:
            upper = end if segment.end is None else min(end, segment.end)
            lower = max(start, segment.base)
            if lower < upper and log_id not in (None, segment.log_id):
                raise replaced(channel, source)
            if lower < upper:
                yield from read_segment(segment, lower, upper)

    def frame_start(self, channel: Channel, source: str, start: int, limit: int) -> int | None:
        """Return the last position where a record begins, after ``start`` and up to ``limit``.

        Reads a fixed number of bytes before the limit, however long the range is; None if no record begins there.
        """
        for segment in reversed(self.segments(channel, source)):
            if segment.base <= limit:
                near = self._near(segment, max(start, segment.base), limit)
                return segment.base if near is None and start < segment.base else near
        return None

    @staticmethod
    def _near(segment: Segment, start: int, limit: int) -> int | None:
        begin = max(start, limit - PIECE)
        with segment.path.open("rb") as file:
            file.seek(begin - segment.base)
            index = last_frame_start(file.read(2 * PIECE), limit - begin)
        return None if index is None else begin + index

    def delete_below(self, channel: Channel, source: str, position: int, log_id: int | None = None) -> None:
        """Delete segments that end at or below a position; nothing if the log has no segment with ``log_id``.

        Invariant: the newest segment stays, and so does the newest one that is not empty, because a writer that opens
        the log recovers its position and sequence from them. A job deletes only what its tables had committed before
        the current batch began: after a crash Spark reads its last batch again, even if the tables have it.
        """
        log = self.segments(channel, source)
        if log_id is not None and log_id not in {segment.log_id for segment in log}:
            return
        oldest_kept = next((segment.base for segment in reversed(log) if segment.path.stat().st_size), 0)
        for segment in log:
            if segment.end is not None and segment.end <= position and segment.base < oldest_kept:
                segment.path.unlink(missing_ok=True)
