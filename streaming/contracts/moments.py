"""Moments as people read them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming.contracts.identifiers import Micros


def utc_text(moment: Micros) -> str:
    """Spell a moment, to the second.

    >>> utc_text(1_700_000_000_900_000)
    '2023-11-14 22:13:20Z'
    """
    return dt.datetime.fromtimestamp(moment // 1_000_000, dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
