"""What a partition is to the ZooKeeper controller (``PartitionStateMachine``), as a table. Pure."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class PartitionState(Enum):
    """Only the last two can be told from ZooKeeper; the others live in the controller's memory."""

    NON_EXISTENT = auto()
    """Never created, or deleted."""
    NEW = auto()
    """It has replicas, but no leader and no ISR yet."""
    ONLINE = auto()
    """Somebody alive leads it."""
    OFFLINE = auto()
    """Its leader died and nobody else may lead."""


_NONE, _NEW, _ONLINE, _OFFLINE = PartitionState
# Where a state may be entered from.
ENTERED_FROM: Final[dict[PartitionState, frozenset[PartitionState]]] = {
    _NONE: frozenset({_OFFLINE}),
    _NEW: frozenset({_NONE}),
    _ONLINE: frozenset({_NEW, _ONLINE, _OFFLINE}),
    _OFFLINE: frozenset({_NEW, _ONLINE, _OFFLINE}),
}


def enter(current: PartitionState, following: PartitionState) -> PartitionState:
    """Give the following state; a way that the table does not have is a mistake of the controller."""
    assert current in ENTERED_FROM[following], f"{current} -> {following}"  # noqa: S101 - IllegalStateException
    return following
