"""One record on disk: magic, length, CRC-32, payload. Knows bytes only; the standard library is enough.

The magic begins with a byte that no UTF-8 text holds, and no payload may hold it. So after damage the next magic is
the next frame, and where a buffer is cut never changes what is found in it. The checksum covers the length, too.
CRC-32 of zlib rather than CRC-32C: every collector and every Spark worker has it.
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


class Frame(NamedTuple):
    """One whole record, and the number of bytes before it in its log."""

    position: int
    payload: bytes

    @property
    def end(self) -> int:
        """Give the position behind this frame."""
        return self.position + HEADER_BYTES + len(self.payload)


class Damaged(NamedTuple):
    """Bytes from ``position`` to ``end`` that hold no valid frame; ``raw`` is what is left of them."""

    position: int
    raw: bytes
    reason: str
    end: int


def encode_frame(payload: bytes) -> bytes:
    """Frame one record.

    Raises:
        ValueError: the payload is longer than ``MAX_PAYLOAD`` or holds the magic.
    """
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a record of {len(payload)} bytes is longer than {MAX_PAYLOAD}")
    if MAGIC in payload:
        raise ValueError("a record must not hold the magic of a frame; it is no UTF-8 text")
    return _HEADER.pack(MAGIC, len(payload), _checksum(payload)) + payload


def parse(data: bytes, position: int, *, closed: bool) -> tuple[list[Frame | Damaged], int]:
    """Find every frame in a piece of a log.

    Args:
        data: the piece; it begins where a frame or damage begins.
        position: of its first byte.
        closed: nothing can follow, so an invalid rest is damage; else it may be still unwritten and is left.

    Returns:
        what was found, in order, and the number of bytes that this covers.
    """
    found: list[Frame | Damaged] = []
    at = 0
    while at < len(data):
        at = _whole_frames(data, at, position, found)
        if at == len(data):
            break
        end, reason = _frame_at(data, at)
        if not reason:
            found.append(Frame(position + at, data[at + HEADER_BYTES : end]))
            at = end
            continue
        following = _next_frame(data, at + 1)
        if following is None:
            if not closed:
                break
            following = len(data)
        found.append(Damaged(position + at, data[at:following], reason, position + following))
        at = following
    return found, at


def _whole_frames(data: bytes, at: int, position: int, found: list[Frame | Damaged]) -> int:
    """Take valid frames as long as they follow each other; give the index behind them."""
    unpack, checksum_of, last = _HEADER.unpack_from, zlib.crc32, len(data) - HEADER_BYTES
    while at <= last:
        magic, length, checksum = unpack(data, at)
        begin = at + HEADER_BYTES
        if length > MAX_PAYLOAD:
            break
        payload = data[begin : begin + length]
        if magic != MAGIC or len(payload) != length or checksum_of(payload, length) != checksum:
            break
        found.append(Frame(position + at, payload))
        at = begin + length
    return at


def whole_up_to(data: bytes) -> int:
    """Give the index behind the last whole frame, 0 for none: whatever is damaged before it stays so.

    >>> whole_up_to(encode_frame(b"a") + MAGIC)
    13
    """
    found = _last_frame(data, 0, len(data))
    return 0 if found is None else found[1]


def last_frame_start(data: bytes, limit: int) -> int | None:
    """Find the last index, from 1 up to a limit, where a whole frame begins; no whole frame reaches over such a place.

    >>> last_frame_start(encode_frame(b"a") + encode_frame(b"b"), 20)
    13
    """
    found = _last_frame(data, 1, limit)
    return None if found is None else found[0]


def _last_frame(data: bytes, first: int, last: int) -> tuple[int, int] | None:
    """Find where the last whole frame begins, between two indices, and where it ends."""
    at = data.rfind(MAGIC, first, last + len(MAGIC))
    while at >= 0:
        end, reason = _frame_at(data, at)
        if not reason:
            return at, end
        at = data.rfind(MAGIC, first, at + len(MAGIC) - 1)
    return None


def _frame_at(data: bytes, at: int) -> tuple[int, str]:
    """Give the end of the frame at this index, or the reason why there is none."""
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
