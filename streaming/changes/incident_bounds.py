"""Where one incident ends and another begins: which incident an ISR removal belongs to. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.incident_classes import brokers_of, is_rolling, restart_turns
from streaming.changes.incident_signals import ChangeRow, Family

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.changes.incident import Incident

TOGETHER: Final = 10_000_000
"""Microseconds: brokers that are lost within this time of each other were lost together, as a rack is."""


def incident_blaming(family: Family, blamed: frozenset[int], incidents: Sequence[Incident]) -> Incident | None:
    """Return the open incident that blames the same broker: of its own kind first, then the newest."""
    candidates = [
        incident for incident in incidents if incident.closed_at is None and _blames(incident, family, blamed)
    ]
    return max(
        candidates,
        key=lambda incident: (incident.base is family, incident.opened_at, incident.incident_id),
        default=None,
    )


def _blames(incident: Incident, family: Family, blamed: frozenset[int]) -> bool:
    """Return whether an incident that blames a broker already explains its trouble.

    It explains more than lag only of the brokers that it is about: a leader that stalled expels healthy followers, and
    says so also in the incident of a broker that was lost before. A planned restart explains a loss, or a failed disk,
    only of a broker that is down because of it now.
    """
    if family is Family.LAG:
        return not blamed.isdisjoint(incident.blamed)
    if family is Family.LOSS and began_with_lag(incident, blamed):
        return True
    if blamed.isdisjoint(brokers_of(incident)):
        return False
    if incident.base is not Family.PLANNED or family not in (Family.LOSS, Family.DISK):
        return True
    return any(incident.down_now(broker) is not None for broker in blamed)


def began_with_lag(incident: Incident, lost: frozenset[int]) -> bool:
    """Return whether an open incident of lag was the beginning of the loss of one of these brokers.

    Leaders expelled it, it has not rejoined, and nobody expelled those leaders. Where a leader is left alone in an ISR
    a stall of it and the death of all its followers look the same before they are lost.
    """
    if incident.episode is None or not incident.is_only_lag:
        return False
    reports = incident.episode.spoken
    reported = {follower for _, follower in reports}
    return any(follower in lost and reporter not in reported for reporter, follower in reports)


def continued_incident(
    family: Family, reporter: int | None, incidents: Sequence[Incident], row: ChangeRow
) -> Incident | None:
    """Return the incident about other brokers that an ISR removal follows from, or continues.

    Args:
        family: what the removal is evidence of.
        reporter: the leader that expelled the broker for lag, if one did.
        incidents: open incidents and those that may continue, the oldest first.
        row: the removal.
    """
    key = (row.topic_id, row.partition)
    open_ones = [incident for incident in reversed(incidents) if incident.closed_at is None]
    if family is Family.PLANNED:
        return next(
            (
                incident
                for incident in reversed(incidents)
                if incident.base is Family.PLANNED or (_may_roll(incident) and is_rolling(incident))
            ),
            None,
        )
    if family is Family.UNCLEAN:
        return next((incident for incident in open_ones if key in incident.held), None)
    if family is Family.LOSS:
        return next(
            (
                incident
                for incident in open_ones
                if incident.lost
                and not incident.disks
                and (row.time - incident.lost_at <= TOGETHER or key in incident.held)
            ),
            None,
        )
    if family is Family.LAG:
        return next((incident for incident in open_ones if reporter in incident.blamed and _is_lagging(incident)), None)
    return None


def _is_lagging(incident: Incident) -> bool:
    """Return whether an incident is of lag alone, and some of it lasts: what is over explains no later report."""
    return incident.episode is not None and incident.is_only_lag


def earlier_turn(incident: Incident, others: Sequence[Incident], since: int) -> Incident | None:
    """Return the incident in which other brokers had restarted before this one's did: turns of one rolling restart.

    Merging hides the later incident, so the earlier one must be over: all its brokers are back, one at the least as a
    new process, before the first broker of the later one went down.

    Args:
        incident: one whose broker has just come back as another process.
        others: the incidents of its cluster.
        since: what was over before this moment is too long ago.
    """
    if incident.base is Family.PLANNED or not incident.lost or not _may_roll(incident):
        return None  # a clean stop after a crash may be the operator's reaction to it
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
    return is_restart and not (incident.disks or incident.unclean_left) and bool(restart_turns(incident))
