"""The default bus: a directory of append-only segments, safe on a shared file system, no broker needed.

    <bus>/<channel>/<source>/<20-digit base position>.log

One process writes a log at a time, any number read it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from streaming.bus.frames import Damaged, Frame, encode_frame, last_frame_start, parse, whole_up_to
from streaming.bus.log import WritableLog
from streaming.bus.segments import Segment, folder_of, folders, segments, source_of
from streaming.contracts.codec import encode
from streaming.errors import ConfigurationError, IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from streaming.contracts.observations import Channel, Observation

_PIECE: Final = 1 << 20


class DirectoryPublisher:
    """Writes the logs below a directory.

    Args:
        directory: the bus; created when missing.
        segment_bytes: a segment that has reached this size is followed by a new one.
        fsync: wait for the disk before :meth:`publish` returns.
    """

    def __init__(self, directory: Path, *, segment_bytes: int, fsync: bool = True) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._fsync = fsync
        self._logs: dict[tuple[str, str], WritableLog] = {}

    def publish(self, observations: Sequence[Observation]) -> None:
        """Write observations, each to the log of its channel and source: one write a log."""
        by_log: dict[tuple[Channel, str], list[Observation]] = {}
        for observation in observations:
            by_log.setdefault((observation.channel, observation.source), []).append(observation)
        for (channel, source), group in by_log.items():
            with self._writing(channel, source) as log:
                first = log.sequence + 1
                numbered = (replace(item, sequence=number) for number, item in enumerate(group, start=first))
                log.append(b"".join(encode_frame(encode(item)) for item in numbered))
                log.sequence += len(group)

    def publish_raw(self, channel: Channel, source: str, payload: bytes) -> None:
        """Write bytes as they are; they take no number of the sequence."""
        with self._writing(channel, source) as log:
            log.append(encode_frame(payload))

    def close(self) -> None:
        """Close every log."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    @contextmanager
    def _writing(self, channel: Channel, source: str) -> Iterator[WritableLog]:
        """Open a log, or take it as it is; after an error of the disk the next call opens it anew.

        Only then it shows what of this call has reached the disk.
        """
        try:
            if (channel, source) not in self._logs:
                folder = self._directory / channel / folder_of(source)
                self._logs[channel, source] = WritableLog(folder, self._segment_bytes, fsync=self._fsync)
            yield self._logs[channel, source]
        except OSError as error:
            if log := self._logs.pop((channel, source), None):
                log.abandon()
            raise IsrwatchError(
                f"cannot write the bus below {self._directory}: {error.strerror}; free space or repair the disk, "
                "what was published before is safe"
            ) from error


class DirectoryReader:
    """Reads the logs below a directory. Any number of readers, beside a writer or without.

    What is certain is remembered: a whole frame with a valid checksum, or damage with a whole frame or a newer segment
    behind it. The rest of the newest segment may still be on its way from a writer's buffer.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Path of a newest segment -> (size and time of the file as seen, position up to which it is certain).
        self._certain: dict[Path, tuple[tuple[int, int], int]] = {}

    def logs(self, channel: Channel) -> list[str]:
        """Name the sources that have a log on this channel, sorted.

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
        """Give the oldest position that is kept of each log."""
        return {source: found[0].base for source in self.logs(channel) if (found := self._segments(channel, source))}

    def end_positions(self, channel: Channel) -> dict[str, int]:
        """Give the position behind the last whole frame of each log.

        Costs a directory listing and a stat a log; only what was added since the last call is read.
        """
        newest = {source: self._segments(channel, source)[-1:] for source in self.logs(channel)}
        ends = {source: self._end(found[0]) for source, found in newest.items() if found}
        self._certain = {found[0].path: self._certain[found[0].path] for found in newest.values() if found}
        return ends

    def bytes_behind(self, channel: Channel, source: str, position: int) -> tuple[int, int]:
        """Tell how much of a log stands behind the record at a position, which was the last one that was applied.

        Returns:
            the end of the log, and the bytes up to it.
        """
        end = self.end_positions(channel).get(source, 0)
        start = self.start_positions(channel).get(source, end)
        if start <= position < end:
            start = next(item.end for item in self.read(channel, source, position, end))
        return end, max(end - start, 0)

    def segment_positions(self, channel: Channel, source: str) -> list[int]:
        """Give the base positions of a log's segments: where a long piece may be cut."""
        return [segment.base for segment in self._segments(channel, source)]

    def read(self, channel: Channel, source: str, start: int, end: int) -> Iterator[Frame | Damaged]:
        """Give everything between two positions, in order.

        Raises:
            IsrwatchError: segments beyond ``start`` were deleted.
        """
        found = self._segments(channel, source)
        oldest = found[0].base if found else end
        if start < min(oldest, end):
            raise IsrwatchError(
                f"segments up to position {oldest} of {channel}/{source} below {self._directory} were deleted, but "
                f"reading was to go on at {start}: restore them, or start with a new checkpoint and new tables"
            )
        for segment in found:
            upper = end if segment.end is None else min(end, segment.end)
            lower = max(start, segment.base)
            if lower < upper:
                yield from _read_segment(segment, lower, upper)

    def frame_start(self, channel: Channel, source: str, start: int, limit: int) -> int | None:
        """Find the last place where a record begins, behind one position and up to another; None where none is near.

        Looks at the bytes before the limit only, however much lies between.
        """
        for segment in reversed(self._segments(channel, source)):
            if segment.base <= limit:
                near = self._near(segment, max(start, segment.base), limit)
                return segment.base if near is None and start < segment.base else near
        return None

    @staticmethod
    def _near(segment: Segment, start: int, limit: int) -> int | None:
        begin = max(start, limit - _PIECE)
        with segment.path.open("rb") as file:
            file.seek(begin - segment.base)
            found = last_frame_start(file.read(2 * _PIECE), limit - begin)
        return None if found is None else begin + found

    def delete_below(self, channel: Channel, source: str, position: int) -> None:
        """Delete whole segments that end at or below a position.

        The newest stays, and the newest that is not empty: the writer recovers its numbers from it.
        """
        found = self._segments(channel, source)
        keep = next((segment.base for segment in reversed(found) if segment.path.stat().st_size), 0)
        for segment in found:
            if segment.end is not None and segment.end <= position and segment.base < keep:
                segment.path.unlink(missing_ok=True)

    def _segments(self, channel: Channel, source: str) -> list[Segment]:
        return segments(self._directory / channel / folder_of(source))

    def _end(self, newest: Segment) -> int:
        """Look at what was added to a newest segment."""
        status = newest.path.stat()
        now = (status.st_size, status.st_mtime_ns)
        seen, certain = self._certain.get(newest.path, ((0, 0), newest.base))
        if now != seen:
            with newest.path.open("rb") as file:
                file.seek(certain - newest.base)
                certain += whole_up_to(file.read())
            self._certain[newest.path] = (now, certain)
        return certain


def _read_segment(segment: Segment, lower: int, upper: int) -> Iterator[Frame | Damaged]:
    """Read one segment piece by piece; where the pieces are cut changes nothing (see ``frames``)."""
    position, rest = lower, b""
    with segment.path.open("rb") as file:
        file.seek(lower - segment.base)
        while (read := position + len(rest)) < upper:
            piece = file.read(min(_PIECE, upper - read))
            if not piece:
                break
            items, covered = parse(rest + piece, position, closed=False)
            yield from items
            position, rest = position + covered, (rest + piece)[covered:]
    items, covered = parse(rest, position, closed=True)
    yield from items
    position += covered
    if position < upper:
        yield Damaged(position, b"", f"{upper - position} bytes are missing", upper)
