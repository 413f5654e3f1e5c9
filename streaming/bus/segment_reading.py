"""The segments of a log, read: up to which position one is final, and what it holds. Depends on frames and segments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from streaming.bus.frames import BusFrame, Damaged, end_of_last_frame, parse
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from streaming.bus.segments import Segment

PIECE: Final = 1 << 20
Stamp = tuple[int, int]
LastLook = tuple[Stamp, int]


def final_position(newest: Segment, last_look: Mapping[Path, LastLook]) -> LastLook:
    """Return size and time of a newest segment and its final position, from what was appended since the last look."""
    stamp = size_and_time(str(newest.path))
    last_stamp, final = last_look.get(newest.path, ((0, 0), newest.base))
    if stamp != last_stamp:
        with newest.path.open("rb") as file:
            file.seek(final - newest.base)
            final += end_of_last_frame(file.read())
    return stamp, final


def replaced(channel: str, source: str) -> IsrwatchError:
    """Return the error of who reads a log that is not the one that it has read before."""
    return IsrwatchError(f"the log {channel}/{source} on the bus was replaced, restored from a copy, or cut")


def is_frame(item: BusFrame | Damaged) -> bool:
    """Return whether an item is a record."""
    return isinstance(item, BusFrame)


def size_and_time(path: str) -> Stamp:
    """Return size and modification time of a file or folder; (-1, -1) while there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a query that waits asks fifty times a second
    except FileNotFoundError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def read_segment(segment: Segment, lower: int, upper: int) -> Iterator[BusFrame | Damaged]:
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
        yield Damaged(position, b"", f"{upper - position} bytes are missing", upper)
