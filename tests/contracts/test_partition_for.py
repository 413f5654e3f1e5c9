"""Java's hash of strings, and the coordinator's partition."""

from __future__ import annotations

import pytest

from streaming.contracts.identifiers import java_hash, partition_for


@pytest.mark.parametrize(
    ("key", "hashed", "partition"),
    [
        ("", 0, 0),
        ("orders-consumer", -1204742690, 40),
        ("console-consumer-1", 35782224, 24),
        # The hash has no absolute value in 32 bits; Kafka takes 0.
        ("polygenelubricants", -2147483648, 0),
    ],
)
def test_a_group_is_coordinated_where_javas_hash_puts_it(key: str, hashed: int, partition: int) -> None:
    assert (java_hash(key), partition_for(key, 50)) == (hashed, partition)


def test_the_hash_goes_over_utf_16_code_units() -> None:
    assert java_hash("é") == 0xE9
    assert java_hash("😀") == 31 * 0xD83D + 0xDE00
