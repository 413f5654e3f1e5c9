"""The files of one log, ``<base position>-<log id>.log``, in order. Depends on names and sizes, not on the content.

Invariant: a segment contains the positions from its base up to the base of the next one; the newest ends with its file.
All segments written since one opening of the log have the same log id, and are consecutive.
"""

from __future__ import annotations

import os
import re
import secrets
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from streaming.bus.frames import BusFrame, DamagedRange, end_of_last_frame, parse
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ID_BITS: Final = 63  # Delta's transactions hold it as a signed number
_CHECKSUM_BITS: Final = 32
_NAME: Final = re.compile(r"(?P<base>\d+)-(?P<log_id>[0-9a-f]{16})\.log")


class Segment(NamedTuple):
    """One file; ``end`` is the base of the next segment, None for the newest."""

    path: Path
    base: int
    end: int | None
    log_id: int

    @property
    def limit(self) -> int:
        """The position after the segment; for the newest one, after the current end of its file."""
        return self.base + self.path.stat().st_size if self.end is None else self.end


def folder_of(source: str) -> str:
    """Return the name of a source's folder, escaped so that no source name leads out of its channel.

    >>> folder_of("metadata_log:collector-1")
    'metadata_log%3Acollector-1'
    """
    return quote(source, safe="").replace(".", "%2E")


def source_of(folder: str) -> str:
    """Return the source of a folder."""
    return unquote(folder)


def new_log_id(parent: int | None) -> int:
    """Return a new random log id; its low half is a checksum of the id that it continues.

    So a reader that has passed the end of a copy of the log still recognises the part that the copy holds.
    """
    low_half = secrets.randbits(_CHECKSUM_BITS) if parent is None else _checksum(parent)
    return secrets.randbits(_ID_BITS - _CHECKSUM_BITS) << _CHECKSUM_BITS | low_half


def goes_on_from(log_id: int | None, parent: int | None) -> bool:
    """Return whether a log id was made where the run with the id ``parent`` ended; False if either is None."""
    if log_id is None or parent is None:
        return False
    return log_id & ((1 << _CHECKSUM_BITS) - 1) == _checksum(parent)


def _checksum(log_id: int) -> int:
    return zlib.crc32(log_id.to_bytes(8, "big"))


def segment_name(base: int, log_id: int) -> str:
    """Return the file name of a segment; names sort like positions."""
    return f"{base:020d}-{log_id:016x}.log"


def segments(log: Path) -> list[Segment]:
    """List a log's segments, oldest first; empty when the log does not exist."""
    try:
        with os.scandir(log) as entries:
            files = sorted(
                (int(match["base"]), entry.name, match["log_id"])
                for entry in entries
                if (match := _NAME.fullmatch(entry.name))
            )
    except FileNotFoundError:
        return []
    ends = [*(base for base, _, _ in files[1:]), None]
    return [
        Segment(log / name, base, end, int(log_id, 16)) for (base, name, log_id), end in zip(files, ends, strict=False)
    ]


def folders(directory: Path) -> list[str]:
    """List the folders below a directory, sorted; empty when it does not exist."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []


# Reading segments: up to which position one is final, and its frames.


PIECE: Final = 1 << 20
Stamp = tuple[int, int]
LastLook = tuple[Stamp, int]


def final_position(newest: Segment, last_look: Mapping[Path, LastLook]) -> LastLook:
    """Return the size and time of a newest segment and its final position; reads only what was appended since."""
    stamp = size_and_time(str(newest.path))
    last_stamp, final = last_look.get(newest.path, ((0, 0), newest.base))
    if stamp != last_stamp:
        with newest.path.open("rb") as file:
            file.seek(final - newest.base)
            final += end_of_last_frame(file.read())
    return stamp, final


def replaced(channel: str, source: str) -> IsrwatchError:
    """Return the error for a log that is not the one that was read before."""
    return IsrwatchError(f"the log {channel}/{source} on the bus was replaced, restored from a copy, or cut")


def size_and_time(path: str) -> Stamp:
    """Return size and modification time of a file or folder; (-1, -1) while there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a waiting query calls this fifty times a second
    except FileNotFoundError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def read_segment(segment: Segment, lower: int, upper: int) -> Iterator[BusFrame | DamagedRange]:
    """Read one segment in pieces; the result does not depend on where they are cut (see :mod:`frames`)."""
    position, rest = lower, b""
    with segment.path.open("rb") as file:
        file.seek(lower - segment.base)
        while (read := position + len(rest)) < upper:
            piece = file.read(min(PIECE, upper - read))
            if not piece:
                break
            items, covered = parse(rest + piece, position, closed=False)
            yield from items
            position, rest = position + covered, (rest + piece)[covered:]
    items, covered = parse(rest, position, closed=True)
    yield from items
    position += covered
    if position < upper:
        yield DamagedRange(position, b"", f"{upper - position} bytes are missing", upper)
