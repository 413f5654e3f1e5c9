"""One record on disk: magic, length, CRC-32, payload. Depends on the standard library only.

Invariant: the magic occurs only at the start of a frame. Its first byte occurs in no UTF-8 text, and
:func:`encode_frame` refuses a payload that contains the magic. So after damage a reader resynchronises at the next
magic, and the result never depends on where a buffer was cut.

The CRC starts from the length of the payload, so a corrupt length is detected as well. It is zlib's CRC-32, not
CRC-32C, because every collector and every Spark worker has it.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

MAGIC: Final = b"\xf5ISR"
MAX_PAYLOAD: Final = 1 << 26
_HEADER: Final = struct.Struct(">4sII")
HEADER_BYTES: Final = _HEADER.size

_INCOMPLETE: Final = "incomplete frame"
_MISMATCH: Final = "checksum mismatch"
_NO_MAGIC: Final = "no frame begins here"


class BusFrame(NamedTuple):
    """One complete record; ``position`` is the number of bytes before it in its log."""

    position: int
    payload: bytes

    @property
    def end(self) -> int:
        """The position after this frame."""
        return self.position + HEADER_BYTES + len(self.payload)


class DamagedRange(NamedTuple):
    """Bytes from ``position`` to ``end`` without a valid frame; ``raw`` holds those that still exist."""

    position: int
    raw: bytes
    reason: str
    end: int


def encode_frame(payload: bytes) -> bytes:
    """Frame one record.

    Raises:
        ValueError: the payload is longer than ``MAX_PAYLOAD`` or contains the magic.
    """
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a record of {len(payload)} bytes is longer than {MAX_PAYLOAD}")
    if MAGIC in payload:
        raise ValueError("a record must not contain the magic of a frame; it is not UTF-8 text")
    return _HEADER.pack(MAGIC, len(payload), _checksum(payload)) + payload


def parse(data: bytes, position: int, *, closed: bool) -> tuple[list[BusFrame | DamagedRange], int]:
    """Parse a piece of a log.

    Args:
        data: the piece; it begins where a frame or damage begins.
        position: position of its first byte.
        closed: nothing can follow, so an invalid rest is damage. Otherwise the writer may not have finished, and an
            invalid rest that no frame follows is left to the next call.

    Returns:
        frames and damage in order, and the number of bytes that they cover.
    """
    items: list[BusFrame | DamagedRange] = []
    at = 0
    while at < len(data):
        at = _append_valid(data, at, position, items)
        if at == len(data):
            break
        end, reason = _frame_at(data, at)
        if not reason:
            items.append(BusFrame(position + at, data[at + HEADER_BYTES : end]))
            at = end
            continue
        following = _next_frame(data, at + 1)
        if following is None:
            if not closed:
                break
            following = len(data)
        elif reason == _INCOMPLETE:
            reason = _MISMATCH  # it overlaps the next frame, so its length is wrong wherever this buffer ends
        items.append(DamagedRange(position + at, data[at:following], reason, position + following))
        at = following
    return items, at


def _append_valid(data: bytes, at: int, position: int, items: list[BusFrame | DamagedRange]) -> int:
    """Append consecutive valid frames and return the index after them: the fast path, without slicing headers."""
    unpack, checksum_of, last = _HEADER.unpack_from, zlib.crc32, len(data) - HEADER_BYTES
    while at <= last:
        magic, length, checksum = unpack(data, at)
        begin = at + HEADER_BYTES
        if length > MAX_PAYLOAD:
            break
        payload = data[begin : begin + length]
        if magic != MAGIC or len(payload) != length or checksum_of(payload, length) != checksum:
            break
        items.append(BusFrame(position + at, payload))
        at = begin + length
    return at


def end_of_last_frame(data: bytes) -> int:
    """Return the index after the last complete frame, 0 for none; damage before it is final.

    >>> end_of_last_frame(encode_frame(b"a") + MAGIC)
    13
    """
    frame = _last_frame(data, 0, len(data))
    return 0 if frame is None else frame[1]


def last_frame_start(data: bytes, limit: int) -> int | None:
    """Return the last index from 1 to a limit where a complete frame begins.

    >>> last_frame_start(encode_frame(b"a") + encode_frame(b"b"), 20)
    13
    """
    frame = _last_frame(data, 1, limit)
    return None if frame is None else frame[0]


def _last_frame(data: bytes, first: int, last: int) -> tuple[int, int] | None:
    """Return start and end of the last complete frame that begins between two indices."""
    at = data.rfind(MAGIC, first, last + len(MAGIC))
    while at >= 0:
        end, reason = _frame_at(data, at)
        if not reason:
            return at, end
        at = data.rfind(MAGIC, first, at + len(MAGIC) - 1)
    return None


def _frame_at(data: bytes, at: int) -> tuple[int, str]:
    """Return the end of the frame at an index, or the reason why there is no valid one."""
    if len(data) - at < HEADER_BYTES:
        return at, _INCOMPLETE if MAGIC.startswith(data[at : at + len(MAGIC)]) else _NO_MAGIC
    magic, length, checksum = _HEADER.unpack_from(data, at)
    if magic != MAGIC:
        return at, _NO_MAGIC
    end = at + HEADER_BYTES + length
    if length > MAX_PAYLOAD:
        return at, _MISMATCH
    if end > len(data):
        return at, _INCOMPLETE
    if _checksum(data[at + HEADER_BYTES : end]) != checksum:
        return at, _MISMATCH
    return end, ""


def _next_frame(data: bytes, start: int) -> int | None:
    at = data.find(MAGIC, start)
    while at >= 0:
        if not _frame_at(data, at)[1]:
            return at
        at = data.find(MAGIC, at + 1)
    return None


def _checksum(payload: bytes) -> int:
    return zlib.crc32(payload, len(payload))
