"""What an application says to its consumer. Values only."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from streaming.model.messages.consumer_fetch import IsolationLevel


class ResetPolicy(Enum):
    """``auto.offset.reset``: where to begin without a position, or with one that does not exist any more."""

    EARLIEST = auto()
    LATEST = auto()
    NONE = auto()


class ConsumerConfig(NamedTuple):
    """The consumer's configuration (``ConsumerConfig``)."""

    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    """``isolation.level``."""
    reset: ResetPolicy = ResetPolicy.LATEST
    """``auto.offset.reset``."""
    rack: str | None = None
    """``client.rack``."""
