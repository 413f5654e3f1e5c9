"""Which partition of an internal topic keeps the state of a group or a transactional id. Knows nothing else."""

from __future__ import annotations

from typing import Final

_WORD: Final = 1 << 32
_SIGN_BIT: Final = 1 << 31


def java_hash(text: str) -> int:
    """Compute ``String.hashCode`` of Java: signed, 32 bits.

    >>> java_hash("console-consumer-1"), java_hash("polygenelubricants")
    (35782224, -2147483648)
    """
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8) + low) % _WORD
    return value - _WORD if value >= _SIGN_BIT else value


def partition_for(key: str, partitions: int) -> int:
    """Give the partition of a group or transactional id (``Utils.abs`` makes 0 of the smallest integer).

    >>> [partition_for(key, 50) for key in ("orders-consumer", "console-consumer-1", "polygenelubricants")]
    [40, 24, 0]
    """
    value = java_hash(key)
    return 0 if value == -_SIGN_BIT else abs(value) % partitions
