"""A gzip stream put together from parts that were compressed apart, so that unchanged parts are compressed once.

Deflate blocks of independent compressors may stand one after another as long as each but the last ends at a byte
(``Z_SYNC_FLUSH``, RFC 1951 section 3.2); the trailer's checksum is taken over the plain bytes (RFC 1952).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEVEL: Final = 1
_RAW: Final = -zlib.MAX_WBITS
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK: Final = b"\x03\x00"


class Block:
    """Some lines of a page: their bytes in pieces, and, once somebody asked for it, their compressed form."""

    __slots__ = ("_deflated", "_size", "pieces", "series")

    def __init__(self, pieces: Sequence[bytes], series: int) -> None:
        """Take lines over.

        Args:
            pieces: whole lines.
            series: how many samples stand in them.
        """
        self.pieces = pieces
        self.series = series
        self._deflated: bytes | None = None
        self._size = 0

    def deflated(self) -> bytes:
        """Give a deflate stream without its end."""
        if self._deflated is None:
            compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, _RAW)
            plain = b"".join(self.pieces)
            self._deflated = compressor.compress(plain) + compressor.flush(zlib.Z_SYNC_FLUSH)
        return self._deflated


def plain(blocks: Iterable[Block]) -> bytes:
    """Give the bytes of some blocks."""
    return b"".join([piece for block in blocks for piece in block.pieces])


def gzipped(blocks: Sequence[Block]) -> bytes:
    """Give some blocks as one gzip member."""
    checksum = size = 0
    for block in blocks:
        for piece in block.pieces:
            checksum = zlib.crc32(piece, checksum)
            size += len(piece)
    trailer = struct.pack("<II", checksum, size & 0xFFFFFFFF)
    return b"".join((_HEADER, *(block.deflated() for block in blocks), _LAST_BLOCK, trailer))
