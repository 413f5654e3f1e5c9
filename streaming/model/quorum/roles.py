"""What a voter of the quorum is, and how it becomes something else (``QuorumState``), as a table. Pure."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class Role(Enum):
    """What a voter is in its epoch. One that has voted is unattached until it hears of the winner."""

    UNATTACHED = auto()
    PROSPECTIVE = auto()
    CANDIDATE = auto()
    FOLLOWER = auto()
    LEADER = auto()
    RESIGNED = auto()


class RoleTrigger(Enum):
    """What makes a voter change its role."""

    HIGHER_EPOCH = auto()
    LEADER_FOUND = auto()
    TIMEOUT = auto()
    """The election took too long; for a follower, its leader was silent; for a candidate, its back-off is over."""
    MAJORITY = auto()
    REFUSED = auto()
    """So many refused their pre-vote that no majority is possible."""
    RESIGN = auto()
    """The process stops, or a majority has not fetched for one and a half fetch timeouts."""


_U, _P, _C, _F, _L, _R = Role
_HIGHER, _LEADER, _TIMEOUT, _MAJORITY, _REFUSED, _RESIGN = RoleTrigger

# A pair that is missing cannot happen. Prospective voters that lose go back to the leader they know, if they know one.
TABLE: Final[dict[tuple[Role, RoleTrigger], Role]] = {
    (_U, _HIGHER): _U,
    (_U, _LEADER): _F,
    (_U, _TIMEOUT): _P,
    (_P, _HIGHER): _U,
    (_P, _LEADER): _F,
    (_P, _MAJORITY): _C,
    (_P, _REFUSED): _U,
    (_P, _TIMEOUT): _U,
    (_C, _HIGHER): _U,
    (_C, _LEADER): _F,
    (_C, _MAJORITY): _L,
    (_C, _TIMEOUT): _P,
    (_F, _HIGHER): _U,
    (_F, _TIMEOUT): _P,
    (_L, _HIGHER): _U,
    (_L, _RESIGN): _R,
    (_R, _HIGHER): _U,
    (_R, _TIMEOUT): _U,
}
