"""One gzip stream from separately compressed blocks, so that unchanged blocks are compressed only once.

The outputs of independent compressors may be concatenated into one deflate stream as long as each part but the last
ends on a byte boundary without a final block (``Z_SYNC_FLUSH``, RFC 1951 section 3.2). The trailer holds the checksum
and size of the uncompressed bytes (RFC 1952); that of a block, too, is computed once.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Speed before size: a change is compressed before it is served.
LEVEL: Final = 1
# Negative: a bare deflate stream, without zlib's own header and checksum, which must not appear inside gzip.
_RAW: Final = -zlib.MAX_WBITS
# Magic number, method deflate, no flags, no time, fastest level, unknown file system.
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
# An empty deflate block with the final bit set: it ends the stream whatever came before.
_LAST_BLOCK: Final = b"\x03\x00"
# Polynomial of CRC-32, bits reversed (RFC 1952).
_POLYNOMIAL: Final = 0xEDB88320
# Bytes up to which it is quicker to compress some lines again than to combine what was computed of them before.
_SMALL: Final = 1 << 15


class Block:
    """Some lines of an exposition: their bytes in pieces, and their compressed bytes once computed.

    Never changes: new lines make a new block. Two threads that compress a block at once compute the same bytes.
    """

    __slots__ = ("_checksum", "_deflated", "pieces", "series", "size")

    def __init__(self, pieces: Sequence[bytes], series: int, size: int | None = None) -> None:
        """Hold pieces of whole lines with a number of samples, and of a size if it is clear already."""
        self.pieces = pieces
        self.series = series
        self.size = sum(map(len, pieces)) if size is None else size
        self._deflated: bytes | None = None
        self._checksum: int | None = None

    def deflated(self) -> bytes:
        """Return the lines as a deflate stream without its final block."""
        if self._deflated is None:
            self._deflated = _deflated(b"".join(self.pieces))
        return self._deflated

    @property
    def is_small(self) -> bool:
        """Return whether compressing it along with its neighbours costs less than what was computed of it saves."""
        return self._deflated is None and self.size <= _SMALL

    def checksum(self) -> int:
        """Return the CRC-32 of the lines."""
        if self._checksum is None:
            # Of thousands of small pieces one after the other, most of the time would be that of the calls.
            self._checksum = zlib.crc32(b"".join(self.pieces))
        return self._checksum

    @property
    def has_checksum(self) -> bool:
        """Return whether the checksum is computed."""
        return self._checksum is not None

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Block:
        """Put blocks together, with their compressed bytes, and their checksum if they have theirs."""
        pieces = list(chain.from_iterable([each.pieces for each in blocks]))
        block = cls(pieces, sum([each.series for each in blocks]), sum([each.size for each in blocks]))
        block._deflated = b"".join([each.deflated() for each in blocks])
        if all(each.has_checksum for each in blocks):
            block._checksum = 0
            for each in blocks:
                block._checksum = _shifted(block._checksum, each.size) ^ each.checksum()
        return block


def plain(blocks: Iterable[Block]) -> bytes:
    """Return the uncompressed bytes of some blocks."""
    return b"".join([piece for block in blocks for piece in block.pieces])


def merged(blocks: Iterable[Block]) -> list[Block]:
    """Return the same lines in few blocks: small ones are put together."""
    kept: list[Block] = []
    for is_small, run in groupby(blocks, attrgetter("is_small")):
        each = list(run)
        kept += [Block((plain(each),), sum(block.series for block in each))] if is_small else each
    return kept


def gzipped(blocks: Iterable[Block]) -> bytes:
    """Return some blocks as one gzip member."""
    checksum = size = 0
    parts = [_HEADER]
    for is_small, run in groupby(blocks, attrgetter("is_small")):
        if is_small:
            lines = plain(run)
            checksum, size = zlib.crc32(lines, checksum), size + len(lines)
            parts.append(_deflated(lines))
            continue
        for block in run:
            checksum, size = _shifted(checksum, block.size) ^ block.checksum(), size + block.size
            parts.append(block.deflated())
    return b"".join((*parts, _LAST_BLOCK, struct.pack("<II", checksum, size & 0xFFFFFFFF)))


def _deflated(lines: bytes) -> bytes:
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, _RAW)
    return compressor.compress(lines) + compressor.flush(zlib.Z_SYNC_FLUSH)


def _shifted(checksum: int, size: int) -> int:
    """Return the part that some bytes have in the CRC-32 of themselves and ``size`` bytes after them.

    The register of a CRC is linear over GF(2): a zero byte multiplies it by a matrix, and squares of that matrix
    multiply it by 2, 4, 8... zero bytes at once.
    """
    power = 0
    while size:
        if size & 1:
            lowest, low, high, highest = _products(power)
            checksum = (
                lowest[checksum & 0xFF]
                ^ low[checksum >> 8 & 0xFF]
                ^ high[checksum >> 16 & 0xFF]
                ^ highest[checksum >> 24]
            )
        size >>= 1
        power += 1
    return checksum


@cache
def _products(power: int) -> tuple[list[int], ...]:
    """Return the products of ``_zero_bytes`` with each value of each of the four bytes of a register, lowest first."""
    matrix = _zero_bytes(power)
    return tuple([_product(matrix, value << place) for value in range(256)] for place in (0, 8, 16, 24))


@cache
def _zero_bytes(power: int) -> tuple[int, ...]:
    """Return the matrix of two to a power zero bytes, a column an integer."""
    if power:
        half = _zero_bytes(power - 1)
        return tuple(_product(half, column) for column in half)
    matrix = (_POLYNOMIAL, *(1 << bit for bit in range(31)))  # of one zero bit
    for _ in range(3):
        matrix = tuple(_product(matrix, column) for column in matrix)
    return matrix


def _product(matrix: tuple[int, ...], vector: int) -> int:
    product = 0
    for column in matrix:
        if vector & 1:
            product ^= column
        vector >>= 1
        if not vector:
            break
    return product
