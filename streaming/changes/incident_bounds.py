"""Where one incident ends and another begins: which incident an ISR removal belongs to. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.changes.incident_classes import brokers_of, class_of
from streaming.changes.incident_signals import ChangeRow, Family
from streaming.changes.lag_attribution import merged_episode, most_blamed
from streaming.contracts.incidents import IncidentClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.changes.configured_times import ConfiguredTimes
    from streaming.changes.incident import Incident
    from streaming.changes.lag_attribution import LagEpisode


def incident_blaming(
    family: Family, blamed: frozenset[int], incidents: Sequence[Incident], moment: int, times: ConfiguredTimes
) -> Incident | None:
    """Return the open incident that blames the same broker: of its own kind first, then the newest."""
    candidates = [
        incident
        for incident in incidents
        if incident.closed_at is None and _blames(incident, family, blamed, moment, times)
    ]
    return max(
        candidates,
        key=lambda incident: (incident.base is family, incident.opened_at, incident.incident_id),
        default=None,
    )


def _blames(incident: Incident, family: Family, blamed: frozenset[int], moment: int, times: ConfiguredTimes) -> bool:
    """Return whether an incident that blames a broker already explains its trouble.

    Lag of a suspect is explained, but by planned work only until the broker has caught up. Anything graver is explained
    only of a broker that the incident is about, because a leader that stalls removes healthy followers, also within the
    incident of a broker that was lost before.
    """
    if family is Family.LAG:
        if blamed.isdisjoint(incident.blamed):
            return False
        is_planned = incident.base is Family.PLANNED
        return not is_planned or _is_away(incident, blamed) or not blamed.isdisjoint(incident.missing)
    if family is Family.LOSS and began_with_lag(incident, blamed, moment, times):
        return True
    return not blamed.isdisjoint(brokers_of(incident, times)) and _may_lead_to(family, incident, blamed, moment, times)


def _may_lead_to(
    family: Family, incident: Incident, blamed: frozenset[int], moment: int, times: ConfiguredTimes
) -> bool:
    """Return whether what an incident is about may be why its brokers have graver trouble.

    A planned restart explains a loss, or a failed disk, only of a broker that is down because of it now. A cut explains
    losses only, of brokers that are cut off by it, so perhaps from the controllers, too, and whose sessions end as soon
    after the reports as they do then. Lag does not explain that somebody stops the broker.
    """
    if family is Family.PLANNED:
        return not incident.is_only_lag
    if family not in (Family.LOSS, Family.DISK):
        return True
    if class_of(incident, times) is IncidentClass.NETWORK_SPLIT:
        episode = incident.episode
        if family is not Family.LOSS or episode is None or moment - episode.began > times.session_after_lag:
            return False
        return not blamed.isdisjoint(_cut_off(episode))
    return incident.base is not Family.PLANNED or _is_away(incident, blamed)


def _is_away(incident: Incident, brokers: frozenset[int]) -> bool:
    return any(incident.down_now(broker) is not None for broker in brokers)


def _cut_off(episode: LagEpisode) -> tuple[int, ...]:
    """Return the brokers that a cut may have taken from the controllers, too.

    Where nobody knows the two sides, these are the fewest brokers that explain all reports.
    """
    return episode.cut_off() if episode.sides() else most_blamed(dict.fromkeys(episode.spoken, 1))


def began_with_lag(incident: Incident, lost: frozenset[int], moment: int, times: ConfiguredTimes) -> bool:
    """Return whether an open incident of lag was the beginning of the loss of one of these brokers.

    Leaders removed it from ISRs, it has not rejoined, and no other leader removed those leaders. Until the brokers are
    reported lost, a stalled leader and the death of all its followers look the same.
    """
    if incident.episode is None or not incident.is_only_lag:
        return False
    reports = incident.episode.spoken
    reported = {follower for _, follower in reports}
    return any(
        follower in lost and reporter not in reported and moment - first <= times.session_after_lag
        for (reporter, follower), (first, _) in reports.items()
    )


def _may_be_a_turn_of(incident: Incident) -> bool:
    """Return whether a clean stop may be a further turn of an incident: a stop that did harm is over with the harm."""
    return incident.base is Family.PLANNED and not (incident.is_recovered and incident.is_unsafe)


def continued_incident(
    family: Family, reporter: int | None, incidents: Sequence[Incident], row: ChangeRow, times: ConfiguredTimes
) -> Incident | None:
    """Return the incident about other brokers that an ISR removal follows from, or continues.

    Args:
        family: what the removal is evidence of.
        reporter: the leader that removed the broker for lag, if one did.
        incidents: open incidents and those that may continue, the oldest first.
        row: the removal.
        times: of the cluster. Brokers whose sessions ended within one session's time were lost together.
    """
    key = (row.topic_id, row.partition)
    open_ones = [incident for incident in reversed(incidents) if incident.closed_at is None]
    if family is Family.PLANNED:
        return next((incident for incident in reversed(incidents) if _may_be_a_turn_of(incident)), None)
    if family is Family.UNCLEAN:
        return next((incident for incident in open_ones if key in incident.held), None)
    if family is Family.LOSS:
        return next(
            (
                incident
                for incident in open_ones
                if incident.lost
                and not incident.disks
                and (row.time - incident.lost_at <= times.lost_together or key in incident.held)
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


def waiting_for(broker: int, incidents: Sequence[Incident]) -> Incident | None:
    """Return the open planned work after which a broker has not caught up yet: if it ends now, it was not stopped."""
    planned = (incident for incident in incidents if incident.base is Family.PLANNED and incident.closed_at is None)
    return next((incident for incident in planned if broker in incident.missing), None)


def last_to_touch(incidents: Sequence[Incident], row: ChangeRow) -> list[Incident]:
    """Return the last incident that has touched a partition, one that suspects its leader first; none, or one."""
    touching = [incident for incident in incidents if incident.has_touched((row.topic_id, row.partition))]
    suspected = [incident for incident in touching if row.leader in incident.blamed]
    return (suspected or touching)[-1:]


def are_one_split(one: Incident, other: Incident, times: ConfiguredTimes) -> bool:
    """Return whether two open incidents of lag are of one cut, seen from different brokers.

    They began within one lag time, and all reports of both cross between the same two groups of brokers: either one of
    them reports both ways, or who keeps up with whom leaves no third group. Where nobody knows the groups, they began
    within one check for lag, and are of different pairs of brokers, or report each other without one that is in all.
    """
    mine, theirs = one.episode, other.episode
    if mine is None or theirs is None or not (one.is_only_lag and other.is_only_lag):
        return False
    both = merged_episode(mine, theirs)
    if both is None or both.removed_again or abs(mine.began - theirs.began) > times.replica_lag_time:
        return False
    if both.torn_at is not None and both.sides():
        return True
    are_pairs = mine.pairs_apart() > 0 and theirs.pairs_apart() > 0 and both.pairs_apart() > 1
    return abs(mine.began - theirs.began) <= times.lag_check and (are_pairs or both.is_scattered(times))


def was_controller(incident: Incident, lost: frozenset[int], row: ChangeRow, times: ConfiguredTimes) -> bool:
    """Return whether an open incident is the failover from a node that is lost as a broker, too.

    The new controller gives every broker a whole session, and looks for expired ones within the next.
    """
    is_failover = incident.base is Family.CONTROLLER and incident.closed_at is None
    return (
        is_failover
        and not lost.isdisjoint(incident.controllers)
        and row.time - incident.updated_at <= (2 * times.broker_session)
    )
