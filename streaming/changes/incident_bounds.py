"""Where one incident ends and another begins: which of those that are known a departure belongs to. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.incident_classes import is_rolling, turns_of
from streaming.changes.incident_signals import Family, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.changes.incident import Incident

TOGETHER: Final = 10_000_000
"""Microseconds: brokers that are lost within this time of each other went together, as a rack does."""


def same_trouble(family: Family, blamed: frozenset[int], known: Sequence[Incident]) -> Incident | None:
    """Find the open incident that blames the same broker: of its own kind first, then the newest."""
    same = [it for it in known if it.closed_at is None and _blames(it, family, blamed)]
    return max(same, key=lambda it: (it.base is family, it.opened_at, it.incident_id), default=None)


def _blames(incident: Incident, family: Family, blamed: frozenset[int]) -> bool:
    """Tell whether a broker in trouble is so because of an incident that blames it already.

    Whoever is lost, or loses a disk, when a restart was planned for another broker or is over, is another matter.
    """
    if blamed.isdisjoint(incident.blamed):
        return False
    if incident.base is not Family.PLANNED or family not in (Family.LOSS, Family.DISK):
        return True
    return any(incident.down_now(broker) is not None for broker in blamed)


def goes_on(family: Family, accuser: int | None, known: Sequence[Incident], row: Row) -> Incident | None:
    """Find the incident about other brokers that a departure follows from, or continues.

    Args:
        family: what the departure is evidence of.
        accuser: the leader whose word it is.
        known: open incidents and those that may go on, the oldest first.
        row: the departure.
    """
    key = (row.topic_id, row.partition)
    alive = [it for it in reversed(known) if it.closed_at is None]
    if family is Family.PLANNED:
        return next((it for it in reversed(known) if it.base is Family.PLANNED or is_rolling(it)), None)
    if family is Family.UNCLEAN:
        return next((it for it in alive if key in it.held), None)
    if family is Family.LOSS:
        return next((it for it in alive if it.lost and (row.time - it.lost_at <= TOGETHER or key in it.held)), None)
    if family is Family.LAG:
        return next((it for it in alive if accuser in it.blamed and only_lags(it)), None)
    return None


def only_lags(incident: Incident) -> bool:
    """Tell whether nothing graver than lag is known of an incident."""
    return incident.base is Family.LAG and not incident.lost


def earlier_turn(incident: Incident, others: Sequence[Incident], since: int) -> Incident | None:
    """Find the incident in which other brokers had restarted before this one's went: turns of one rolling restart.

    Args:
        incident: one whose broker has just come back as another process.
        others: what is known of its cluster.
        since: what was over before this moment is too long ago.
    """
    if incident.base is Family.PLANNED or not _may_roll(incident):
        return None  # a clean stop after a crash may be somebody's answer to it
    began = min(down.at for down in incident.downs)
    for other in reversed(others):
        if other is incident or not _may_roll(other) or incident.lost & (other.lost | other.planned):
            continue
        ends = [down.back_at for down in other.downs if down.restarted and down.back_at is not None]
        is_whole = all(down.back_at is not None for down in other.downs)
        if ends and is_whole and max(ends) <= began and other.updated_at >= since:
            return other
    return None


def _may_roll(incident: Incident) -> bool:
    is_restart = incident.base in (Family.LOSS, Family.PLANNED, Family.LAG)
    return is_restart and not (incident.disks or incident.unclean_left) and bool(turns_of(incident))
