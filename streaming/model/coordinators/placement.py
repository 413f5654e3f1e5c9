"""Which partition of an internal topic, and so which broker, coordinates a group or a transactional id. Pure."""

from __future__ import annotations

from typing import Final

_SIGN: Final = 0x8000_0000


def java_hash(text: str) -> int:
    """Hash as ``java.lang.String`` does, over UTF-16 code units; a signed number of 32 bits.

    >>> java_hash("console-consumer-1")
    35782224
    """
    units = text.encode("utf-16-be")
    h = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        h = 31 * h + (high << 8 | low) & 0xFFFF_FFFF
    return h - 2 * (h & _SIGN)


def partition_for(coordinator_key: str, partitions: int) -> int:
    """Give the partition of ``__consumer_offsets`` or ``__transaction_state`` for a group or a transactional id.

    Its leader is the coordinator (``GroupMetadataManager.partitionFor``). The one number without an absolute value
    counts as 0, as in ``Utils.abs``.

    >>> partition_for("console-consumer-1", 50)
    24
    """
    h = java_hash(coordinator_key)
    return 0 if h == -_SIGN else abs(h) % partitions
