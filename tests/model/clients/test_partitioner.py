"""Where records with a key go."""

from __future__ import annotations

import pytest

from streaming.model.clients.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "hashed", "partition"),
    [
        ("21", -973932308, 0),
        ("foobar", -790332482, 6),
        ("a-little-bit-long-string", -985981536, 8),
        ("a-little-bit-longer-string", -1486304829, 11),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 5),
        ("abc", 479470107, 3),
    ],
)
def test_statement_31_a_key_goes_where_murmur2_puts_it(key: str, hashed: int, partition: int) -> None:
    assert (murmur2(key.encode()), partition_for_key(key.encode(), 12)) == (hashed, partition)


def test_statement_36_the_order_of_a_key_ends_where_partitions_are_added() -> None:
    keys = [f"customer-{number}".encode() for number in range(100)]
    moved = [key for key in keys if partition_for_key(key, 12) != partition_for_key(key, 13)]
    assert len(moved) > 80
