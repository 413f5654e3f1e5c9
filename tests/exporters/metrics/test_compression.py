from __future__ import annotations

import gzip
import zlib

from hypothesis import given
from hypothesis import strategies as st

from exporters.metrics.compression import Block, gzipped, plain

LARGE = 1 << 15
"""Smaller blocks that are beside each other are compressed together."""
blocks = st.lists(st.lists(st.binary(max_size=200), max_size=4), max_size=8)


@given(blocks, st.lists(st.integers(0, 1), max_size=8))
def test_blocks_compressed_apart_are_one_gzip_member_of_the_plain_bytes(
    pieces: list[list[bytes]], large: list[int]
) -> None:
    # Large blocks are combined of what was computed before, small ones beside each other are compressed together.
    for each, is_large in zip(pieces, large, strict=False):
        each += [bytes([number % 251]) * 257 for number in range(is_large * 2 * LARGE // 257)]
    made = [Block(each, 0) for each in pieces]
    expected = b"".join(piece for each in pieces for piece in each)
    assert plain(made) == expected
    assert gzip.decompress(gzipped(made)) == expected
    assert gzip.decompress(gzipped([*made[:1], Block.of(made[1:])])) == expected
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    assert reader.decompress(gzipped(made)) == expected
    assert (reader.eof, reader.unused_data) == (True, b"")


def test_a_block_is_compressed_once() -> None:
    block = Block([b"a" * 1000], 1)
    assert block.deflated() is block.deflated()
    assert len(block.deflated()) < 100
