"""One gzip stream from separately compressed blocks, so that unchanged blocks are compressed only once.

The outputs of independent compressors may be concatenated into one deflate stream as long as each part but the last
ends on a byte boundary without a final block (``Z_SYNC_FLUSH``, RFC 1951 section 3.2). The trailer holds the checksum
and size of the uncompressed bytes (RFC 1952).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Speed before size: a changed block is compressed while a scrape waits.
LEVEL: Final = 1
# Negative: a bare deflate stream, without zlib's own header and checksum, which must not appear inside gzip.
_RAW: Final = -zlib.MAX_WBITS
# Magic number, method deflate, no flags, no time, fastest level, unknown file system.
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
# An empty deflate block with the final bit set: it ends the stream whatever came before.
_LAST_BLOCK: Final = b"\x03\x00"


class Block:
    """Some lines of an exposition: their bytes in pieces, and their compressed bytes once computed.

    Never changes: new lines make a new block. Two threads that compress a block at once compute the same bytes.
    """

    __slots__ = ("_deflated", "_size", "pieces", "series")

    def __init__(self, pieces: Sequence[bytes], series: int) -> None:
        """Hold some lines.

        Args:
            pieces: whole lines.
            series: number of samples in them.
        """
        self.pieces = pieces
        self.series = series
        self._deflated: bytes | None = None
        self._size = 0

    def deflated(self) -> bytes:
        """Return the lines as a deflate stream without its final block."""
        if self._deflated is None:
            compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, _RAW)
            plain = b"".join(self.pieces)
            self._deflated = compressor.compress(plain) + compressor.flush(zlib.Z_SYNC_FLUSH)
        return self._deflated


def plain(blocks: Iterable[Block]) -> bytes:
    """Return the uncompressed bytes of some blocks."""
    return b"".join([piece for block in blocks for piece in block.pieces])


def gzipped(blocks: Sequence[Block]) -> bytes:
    """Return some blocks as one gzip member."""
    checksum = size = 0
    for block in blocks:
        for piece in block.pieces:
            checksum = zlib.crc32(piece, checksum)
            size += len(piece)
    trailer = struct.pack("<II", checksum, size & 0xFFFFFFFF)
    return b"".join((_HEADER, *(block.deflated() for block in blocks), _LAST_BLOCK, trailer))
