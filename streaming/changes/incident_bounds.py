"""Where one incident ends and another begins: which incident an ISR removal belongs to. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.incident_classes import brokers_of, is_rolling, restart_turns
from streaming.changes.incident_signals import ChangeRow, Family

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.changes.incident import Incident

LOST_TOGETHER: Final = 10_000_000
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

    Lag of a suspect is always explained. Anything graver is explained only of a broker that the incident is about,
    because a leader that stalls removes healthy followers, also within the incident of a broker that was lost before. A
    planned restart explains a loss, or a failed disk, only of a broker that is down because of it now.
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

    Leaders removed it from ISRs, it has not rejoined, and no other leader removed those leaders. Until the brokers are
    reported lost, a stalled leader and the death of all its followers look the same.
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
        reporter: the leader that removed the broker for lag, if one did.
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
                if incident.base is Family.PLANNED or (_may_be_rolling_restart(incident) and is_rolling(incident))
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
                and (row.time - incident.lost_at <= LOST_TOGETHER or key in incident.held)
            ),
            None,
        )
    if family is Family.LAG:
        return next(
            (incident for incident in open_ones if reporter in incident.blamed and _has_lasting_lag(incident)), None
        )
    return None


def _has_lasting_lag(incident: Incident) -> bool:
    """Return whether an incident is of lag alone, and some of it lasts: what is over explains no later report."""
    return incident.episode is not None and incident.is_only_lag


def earlier_turn(incident: Incident, others: Sequence[Incident], since: int) -> Incident | None:
    """Return the incident in which other brokers restarted before those of this one: turns of one rolling restart.

    Merging hides the later incident, so the earlier one must be over: all its brokers are back, at least one as a new
    process, before the first broker of the later one went down.

    Args:
        incident: one whose broker has just come back as another process.
        others: the incidents of its cluster.
        since: incidents whose last change was before this moment are left out.
    """
    if incident.base is Family.PLANNED or not incident.lost or not _may_be_rolling_restart(incident):
        return None  # a clean stop after a crash may be the operator's reaction to it
    began = min(down.at for down in incident.downs)
    for other in reversed(others):
        if other is incident or not _may_be_rolling_restart(other) or incident.lost & (other.lost | other.planned):
            continue
        ends = [down.back_at for down in other.downs if down.restarted and down.back_at is not None]
        is_whole = all(down.back_at is not None for down in other.downs)
        if ends and is_whole and max(ends) <= began and other.updated_at >= since:
            return other
    return None


def _may_be_rolling_restart(incident: Incident) -> bool:
    is_restart = incident.base in (Family.LOSS, Family.PLANNED, Family.LAG)
    return is_restart and not (incident.disks or incident.unclean_left) and bool(restart_turns(incident))
