"""The default bus: a directory of append-only segments on a local or shared file system.

    <bus>/<channel>/<source>/<20-digit base position>-<log id>.log

One process writes a log at a time, any number read it.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

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
    is_frame,
    read_segment,
    replaced,
    segments,
    size_and_time,
    source_of,
)
from streaming.contracts.codec import encode
from streaming.contracts.identifiers import NOWHERE, LogPosition
from streaming.errors import BusFull, ConfigurationError, IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from streaming.contracts.observations import Channel, Observation

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


class DirectoryPublisher:
    """Writes the logs below a directory.

    Args:
        directory: the bus; created when missing.
        segment_bytes: size at which a new segment is started.
        fsync: sync to disk before :meth:`publish` returns.
        max_bytes: what the whole bus may take; None: it may grow without limit.
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
        """Write observations, each to the log of its channel and source, with one write per log."""
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
        """Write bytes verbatim, without a sequence number."""
        with self._writing(channel, source) as log:
            self._append(log, encode_frame(payload))

    def take_removed(self) -> RemovedBytes:
        """Return and forget how much was deleted since the last call although it may not have been applied."""
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
        """Close every log."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    @contextmanager
    def _writing(self, channel: Channel, source: str) -> Iterator[WritableLog]:
        """Return a log, opened on first use and again after a disk error.

        After an error the log's sequence in memory is unknown: opening it again recovers it from what is on disk.
        """
        try:
            if (channel, source) not in self._logs:
                folder = self._directory / channel / folder_of(source)
                self._logs[channel, source] = WritableLog(folder, self._segment_bytes, fsync=self._fsync)
            yield self._logs[channel, source]
        except OSError as error:
            if log := self._logs.pop((channel, source), None):
                log.abandon()
            if error.errno in _FULL:
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

    Invariant: the end of a log is a *final* position: before it are only complete frames with a valid checksum, and
    damage that has such a frame or a newer segment behind it. The rest of the newest segment may still be in the
    writer's buffers, so it is neither data nor damage yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Of each channel: newest segment -> (size and modification time at the last look, its final position).
        self._final: dict[Channel, dict[Path, LastLook]] = {}
        # Of each channel: what a write changes, and its sizes and times at the last look.
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

    def start_positions(self, channel: Channel) -> dict[str, int]:
        """Return the oldest position of each log."""
        return {source: log[0].base for source in self.logs(channel) if (log := self.segments(channel, source))}

    def end_positions(self, channel: Channel) -> dict[str, int]:
        """Return the position behind the last complete frame of each log.

        Costs a directory listing and a stat per log; reads only what was appended since the last call.
        """
        newest = {source: self.segments(channel, source)[-1:] for source in self.logs(channel)}
        paths = [last[0].path for last in newest.values() if last]
        places = [self._directory / channel, *(place for path in paths for place in (path.parent, path))]
        watched = tuple(map(str, places))
        stamps = tuple(map(size_and_time, watched))  # before the files are read: what is written meanwhile is news
        last_look = self._final.get(channel, {})
        final = {source: final_position(last[0], last_look) for source, last in newest.items() if last}
        self._final[channel] = dict(zip(paths, final.values(), strict=True))
        self._watched[channel] = watched, stamps
        return {source: position for source, (_, position) in final.items()}

    def has_moved(self, channel: Channel) -> bool:
        """Return whether a log was begun, written or cut since the last :meth:`end_positions`; two stats per log.

        A segment that begins in the same tick of the disk's clock as that call shows with its first record only.
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
        """Wait until what the logs of a channel hold is on the disk: readers see it before their writer has waited."""
        for source in self.logs(channel):
            for segment in self.segments(channel, source)[-2:]:  # the writer has waited for all before those
                sync_file(segment.path)

    def segments(self, channel: Channel, source: str) -> list[Segment]:
        """List a log's segments, oldest first: where a long range may be split, and who wrote what."""
        return segments(self._directory / channel / folder_of(source))

    def is_in_log(self, channel: Channel, source: str, at: LogPosition) -> bool:
        """Return whether a log still reaches up to a position; not if it was replaced, or restored and written on."""
        ours = [segment for segment in self.segments(channel, source) if segment.log_id == at.log_id]
        return bool(ours) and at.position <= ours[-1].limit

    def last_common(self, channel: Channel, source: str, applied: LogPosition) -> LogPosition:
        """Return the last record that both a log and who applied it have.

        That is the applied one, unless the log was replaced, restored from a copy, or cut. Of a log that is not there
        at all nothing can be said: it is the applied one, too.

        Returns:
            the record; ``NOWHERE`` if there is none that both certainly have.
        """
        log = self.segments(channel, source)
        ours = [segment for segment in log if segment.log_id == applied.log_id]
        if not log or applied.position < 0 or (ours and applied.position < ours[-1].limit):
            return applied  # what was deleted behind it is noticed by the numbers of the rest
        if not ours and log[0].base > applied.position and goes_on_from(log[0].log_id, applied.log_id):
            return applied  # all segments of that run were deleted, and the next run went on behind it
        before = [segment for segment in log if goes_on_from(applied.log_id, segment.log_id)]  # a copy ends before it
        for segment in (*reversed(ours), *reversed(before)):
            frames = [item.position for item in read_segment(segment, segment.base, segment.limit) if is_frame(item)]
            if frames:
                return LogPosition(frames[-1], segment.log_id)
        return NOWHERE

    def read(
        self, channel: Channel, source: str, start: int, end: int, log_id: int | None = None
    ) -> Iterator[BusFrame | DamagedRange]:
        """Read everything between two positions, in order.

        Args:
            channel: of the log.
            source: of the log.
            start: first position.
            end: position behind the last record.
            log_id: of every segment in between; None if that does not matter.

        Raises:
            IsrwatchError: segments beyond ``start`` were deleted, or the log was replaced.
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
        """Return the last position where a record begins, after ``start`` and up to ``limit``; None when none is near.

        Reads only a fixed number of bytes before the limit, however long the range is.
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
        """Delete segments that end at or below a position; nothing if that (``log_id``) is of another log.

        Invariant: the newest segment stays, and the newest one that is not empty, because a writer that opens the log
        recovers position and sequence from them. A job deletes only below what its tables had committed before the
        current batch began: after a crash Spark plans its last batch again and reads it, even when the tables have it.
        """
        log = self.segments(channel, source)
        if log_id is not None and log_id not in {segment.log_id for segment in log}:
            return
        oldest_kept = next((segment.base for segment in reversed(log) if segment.path.stat().st_size), 0)
        for segment in log:
            if segment.end is not None and segment.end <= position and segment.base < oldest_kept:
                segment.path.unlink(missing_ok=True)


# The interface for sources. Depends on contracts only.


class Publisher(Protocol):
    """Writes observations to the log of their channel and source, in order, with sequence numbers."""

    def publish(self, observations: Sequence[Observation]) -> None:
        """Write observations durably.

        Each gets the next ``sequence`` of its log, whatever value it had before.

        Raises:
            IsrwatchError: none or only some of them could be written. Publish all of them again: the job recognises
                duplicates.
        """

    def publish_raw(self, channel: Channel, source: str, payload: bytes) -> None:
        """Write bytes verbatim.

        Raises:
            IsrwatchError: as above.
        """

    def close(self) -> None:
        """Close and unlock the logs, so that another publisher can write them."""
