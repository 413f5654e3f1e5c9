"""Choice of the partition for a record with a key: a hash, so that records of equal keys keep their order."""

from __future__ import annotations

from typing import Final

_INT: Final = 0xFFFF_FFFF
_POSITIVE: Final = 0x7FFF_FFFF
_SEED: Final = 0x9747_B28C
_MULTIPLIER: Final = 0x5BD1_E995


def murmur2(data: bytes) -> int:
    """Hash bytes as Kafka's clients do (``Utils.murmur2``); a signed number of 32 bits.

    >>> murmur2(b"foobar")
    -790332482
    """
    aligned = len(data) & ~3
    h = _SEED ^ len(data)
    for start in range(0, aligned, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _INT
        k = (k ^ k >> 24) * _MULTIPLIER & _INT
        h = h * _MULTIPLIER & _INT ^ k
    if aligned < len(data):
        h = (h ^ int.from_bytes(data[aligned:], "little")) * _MULTIPLIER & _INT
    h = (h ^ h >> 13) * _MULTIPLIER & _INT
    h ^= h >> 15
    return h - 2 * (h & ~_POSITIVE)


def partition_for_key(key: bytes, partitions: int) -> int:
    """Give the partition of a key: a property of the key and the count, so adding partitions moves keys.

    >>> partition_for_key(b"foobar", 12)
    6
    """
    return (murmur2(key) & _POSITIVE) % partitions
