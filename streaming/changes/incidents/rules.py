"""The class of an incident and its suspects. Pure.

The class follows from all changes so far, so it may become graver while the incident is open: a follower that lagged
turns out to be a broker that died; clean stops of several brokers in turn are one rolling restart.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.changes.incidents.context import FAMILY_OF, HARM, ChangeRow, Family
from streaming.changes.incidents.lag_attribution import merged_episode, most_blamed
from streaming.contracts.events import PLANNED_CLASSES, Cause, EventKind, Evidence, IncidentClass
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.observations import SourceKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.changes.incidents.context import ClusterContext
    from streaming.changes.incidents.incident import Incident
    from streaming.changes.incidents.lag_attribution import BrokerAbsence, LagEpisode
    from streaming.changes.state import ConfiguredTimes
    from streaming.contracts.identifiers import BrokerId

_LAG_CLASSES = frozenset({
    IncidentClass.SLOW_FOLLOWER,
    IncidentClass.LEADER_STALL,
    IncidentClass.NETWORK_SPLIT,
    IncidentClass.LINK_FAILURE,
})  # fmt: skip


def class_of(incident: Incident, times: ConfiguredTimes) -> IncidentClass:  # noqa: PLR0911 - one per kind of evidence
    """Return the class, by the gravest evidence."""
    if incident.unclean_left:
        return IncidentClass.UNCLEAN_ELECTION
    if incident.base is Family.TWO_PROCESSES:
        return IncidentClass.TWO_PROCESSES
    if incident.disks:
        return IncidentClass.DISK_FAILURE
    if incident.lost:
        return IncidentClass.RACK_LOSS if incident.rack else IncidentClass.BROKER_LOSS
    if incident.base is Family.STALL:
        return IncidentClass.BROKER_LOSS if incident.overdue else IncidentClass.CONTROLLER_STALL
    if incident.base is Family.LAG:
        return _verdict(incident, times)
    if incident.base is Family.PLANNED:
        return class_of_stops(incident)
    if incident.base is Family.MOVE:
        is_unsafe = incident.refused or incident.leaderless
        return IncidentClass.UNSAFE_REASSIGNMENT if is_unsafe else IncidentClass.REASSIGNMENT
    return {Family.CONTROLLER: IncidentClass.CONTROLLER_FAILOVER, Family.UNCLEAN: IncidentClass.UNCLEAN_ELECTION}.get(
        incident.base, IncidentClass.BROKER_LOSS
    )


def _verdict(incident: Incident, times: ConfiguredTimes) -> IncidentClass:
    """Return the verdict that held for most of the time with lag reports; slow follower if there was none."""
    weights = dict(incident.verdicts)
    if (episode := incident.episode) is not None:
        verdict = episode.verdict(times)
        weights[verdict] = weights.get(verdict, 0) + max(1, episode.seen - episode.began)
    if IncidentClass.NETWORK_SPLIT in weights and _has_several_links(incident):
        weights.pop(IncidentClass.LINK_FAILURE, None)  # one link does not explain them, the cut before or after it does
    gravest = max(weights.items(), key=lambda item: (item[1], item[0]), default=(IncidentClass.SLOW_FOLLOWER, 0))
    return IncidentClass(gravest[0])


def _has_several_links(incident: Incident) -> bool:
    return len({frozenset(pair) for pair in incident.departures if pair[0] != NO_LEADER}) > 1


def suspects_of(incident: Incident, kind: IncidentClass, times: ConfiguredTimes) -> dict[int, float]:
    """Return the brokers to blame, each with how much of the ISR removals it explains (as ``suspects.scores`` does).

    Who was stopped by an order is named, and to blame for nothing. A lost link is as much one's fault as the other's,
    and where one leader removed one follower that follows no other leader, no record shows which of the two is slow.
    """
    suspects = _suspects(incident, kind, times)
    if kind in PLANNED_CLASSES:
        return dict.fromkeys(suspects, 0.0)
    if kind in (IncidentClass.CONTROLLER_STALL, IncidentClass.TWO_PROCESSES) or incident.is_elected_by_stall:
        return dict.fromkeys(suspects, 1.0)
    is_either = kind is IncidentClass.SLOW_FOLLOWER and incident.only_report is not None
    if is_either or kind is IncidentClass.LINK_FAILURE:
        suspects = tuple(sorted(incident.only_report or suspects))
        return {broker: 1 / len(suspects) for broker in suspects}
    blame = dict.fromkeys(suspects, Fraction())
    for removal, count in incident.departures.items():
        guilty = blame.keys() & set(_parties(removal, kind))
        for broker in guilty:
            blame[broker] += Fraction(count, len(guilty))
    total = max(1, sum(incident.departures.values()))
    return {broker: float(count / total) for broker, count in blame.items()}


def brokers_of(incident: Incident, times: ConfiguredTimes) -> set[int]:
    """Return the brokers that an incident is about: those that went away or lost a disk, and its suspects."""
    away = incident.lost | incident.planned | incident.disks | incident.unclean_left
    return away.union(_suspects(incident, class_of(incident, times), times))


def _parties(removal: tuple[int, int], kind: IncidentClass) -> tuple[int, ...]:
    """Return who may be to blame for an ISR removal: for lag also the leader that reports it."""
    return removal if kind in _LAG_CLASSES else removal[1:]


def _suspects(incident: Incident, kind: IncidentClass, times: ConfiguredTimes) -> tuple[int, ...]:
    if incident.base in (Family.MOVE, Family.CONTROLLER):
        return ()
    shown = {
        IncidentClass.CONTROLLER_STALL: incident.controllers,
        IncidentClass.TWO_PROCESSES: incident.doubled,
        IncidentClass.DISK_FAILURE: incident.disks,
    }
    if incident.is_elected_by_stall:
        return tuple(sorted(incident.controllers))
    if kind in shown:
        return tuple(sorted(shown[kind]))
    if kind in _LAG_CLASSES:
        return _lag_suspects(incident, kind, times)
    if kind in (IncidentClass.BROKER_LOSS, IncidentClass.RACK_LOSS):
        return tuple(sorted(incident.lost or incident.overdue))
    away = incident.lost | incident.planned
    if kind is IncidentClass.UNCLEAN_ELECTION:
        away = incident.unclean_left - incident.innocent or away
    return tuple(sorted(incident.harmed_by & incident.planned if kind is IncidentClass.UNSAFE_SHUTDOWN else away))


def _lag_suspects(incident: Incident, kind: IncidentClass, times: ConfiguredTimes) -> tuple[int, ...]:
    reports = {pair: count for pair, count in incident.departures.items() if pair[0] != NO_LEADER}
    if kind is IncidentClass.NETWORK_SPLIT:
        return incident.episode.cut_off() if incident.episode is not None else incident.cut
    if kind is IncidentClass.LINK_FAILURE:
        return tuple(sorted({broker for pair in reports for broker in pair}))
    now = incident.episode.stalled(times) if incident.episode is not None else ()
    if kind is IncidentClass.LEADER_STALL and (stalled := {*now, *incident.stalled}):
        return tuple(sorted(stalled))  # the times of the reports say more than their numbers
    return most_blamed(reports) or tuple(sorted({broker for _, broker in incident.departures}))


# Bounds between incidents: the incident that an ISR removal belongs to. Pure.


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
    after the reports as they do then. Lag does not explain a stop of the broker.
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

    Where the two sides are unknown, these are the fewest brokers that explain all reports.
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
    if family is Family.STALL:
        return next((incident for incident in open_ones if incident.base is Family.STALL and not incident.lost), None)
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


def innocent_so_far(broker: int, incidents: Sequence[Incident]) -> Incident | None:
    """Return the open incident of a controller's stall after which a broker has rejoined no ISR: it may be dead.

    What it sent before it died was read when the controller resumed, and gave it one more session.
    """
    open_ones = (incident for incident in incidents if incident.closed_at is None)
    of_stall = (incident for incident in open_ones if broker in incident.innocent - incident.rejoined)
    return next((incident for incident in of_stall if broker in incident.missing), None)


def is_missed_by_stall(
    incidents: Sequence[Incident], family: Family, gone: tuple[BrokerId, ...], row: ChangeRow
) -> bool:
    """Return whether a clean stop did harm only because the controller had fenced brokers for its own silence."""
    others = {*row.replicas}.difference(row.isr, gone)
    innocent = {
        broker for each in incidents for broker in each.innocent if each.holds((row.topic_id, row.partition), [broker])
    }
    return family is Family.PLANNED and bool(others) and others <= innocent


def last_to_touch(incidents: Sequence[Incident], row: ChangeRow) -> list[Incident]:
    """Return the last incident that has touched a partition, one that suspects its leader first; none, or one."""
    touching = [incident for incident in incidents if incident.has_touched((row.topic_id, row.partition))]
    suspected = [incident for incident in touching if row.leader in incident.blamed]
    return (suspected or touching)[-1:]


def are_one_split(one: Incident, other: Incident, times: ConfiguredTimes) -> bool:
    """Return whether two open incidents of lag are of one cut, seen from different brokers.

    They began within one lag time, and all reports of both cross between the same two groups of brokers: either one of
    them reports both ways, or who keeps up with whom leaves no third group. Where the groups are unknown, they began
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


# Planned work: the one place that decides what counts as planned. Pure.
#
# Planned is proven, part by part: a removal is, if the metadata log proves a controlled shutdown or shows a
# reassignment, or if planned work on each removed broker was announced before; a broker's end is, if it was shutting
# down, or if its work was announced. An incident is, if each of its parts was, the stopped brokers came back and
# caught up, and no partition refused writes or lost its leader by a stop, by a reassignment, or by a broker that ran
# and lagged although work was announced.


_ANNOUNCED: Final = frozenset({Family.LAG, Family.LOSS})
"""Planned while work on the broker is announced: an unclean election never is, nor is a lost directory. Whether
partitions went offline or refused writes is judged with the incident."""


class Trouble(NamedTuple):
    """Trouble that a partition's step is evidence of, and the brokers it lacks by that.

    ``family`` None: of no trouble. ``is_announced``: it is planned only because work on these brokers was announced.
    """

    family: Family | None
    gone: tuple[BrokerId, ...]
    is_announced: bool = False


def trouble_of(row: ChangeRow, context: ClusterContext) -> Trouble:
    """Return what a partition's step is evidence of.

    Where its cause names no broker's end, what is known of the brokers decides: between two looks everything may have
    happened, and a topic may be created while brokers are down.
    """
    family, gone = FAMILY_OF.get(row.cause or ""), row.gone
    if EventKind.UNCLEAN_ELECTION in row.events and row.cause != Cause.LAST_KNOWN_LEADER:
        return Trouble(Family.UNCLEAN, gone)  # whatever else is known: also in a gap, which hides the cause
    if family is Family.PLANNED and not _is_proven_stop(row):
        family = Family.LOSS
    lacking = tuple(broker for broker in row.replicas if broker not in row.isr)
    refuses, stay = not HARM.isdisjoint(row.events), tuple(broker for broker in gone if broker in row.replicas)
    if row.cause == Cause.CREATED and row.is_under_replicated and row.leader != NO_LEADER:
        is_unsure = refuses or row.evidence != Evidence.PROVEN
        family, gone = Family.LAG, tuple(filter(context.is_down, lacking)) or (lacking if is_unsure else ())
    elif refuses and (_is_unproven_move(row) or (not gone and family is not Family.MOVE)):
        family, gone = _family_of_lacking(row), lacking if row.leader != NO_LEADER else row.isr or lacking
    elif _is_unproven_move(row) and stay:  # no move takes a broker out of the ISR that stays assigned
        family, gone = Family.LOSS if row.evidence == Evidence.AMBIGUOUS else Family.LAG, stay
    elif row.cause == Cause.UNKNOWN:
        family, gone = family if row.leader != NO_LEADER else Family.LOSS, stay
    is_moved = row.cause == Cause.REASSIGNMENT and not stay  # also from a broker that was stopped just afterwards
    if gone and not is_moved and row.cause in _OF_ANY_KIND and all(map(context.is_down, gone)):
        family = Family.PLANNED if all(map(context.was_stopped, gone)) else Family.LOSS
    refuses &= row.cause in (Cause.LAG, Cause.LEADER_STALL)
    if family not in _ANNOUNCED or not gone or refuses or not context.is_planned(gone, row.since, row.time):
        return Trouble(family, gone)
    return Trouble(Family.PLANNED, gone, is_announced=True)


def _is_proven_stop(row: ChangeRow) -> bool:
    """Return whether a clean stop is proven, or of a polled cluster: inferred from the conduct of the broker."""
    is_polled = row.source_kind == SourceKind.POLL
    return row.evidence == (Evidence.INFERRED if is_polled else Evidence.PROVEN)


_OF_ANY_KIND: Final = frozenset({Cause.UNKNOWN, Cause.CREATED, Cause.CONFIG, Cause.REASSIGNMENT})


def _is_unproven_move(row: ChangeRow) -> bool:
    return row.cause == Cause.REASSIGNMENT and row.evidence != Evidence.PROVEN


def _family_of_lacking(row: ChangeRow) -> Family:
    """Return what a partition that refuses writes by no removal is evidence of, while no broker is known to be down.

    A minimum was raised, or replicas were added, or it was seen for the first time after a gap.
    """
    if row.leader == NO_LEADER:
        return Family.LOSS
    return Family.MOVE if row.is_moving and row.cause != Cause.REASSIGNMENT else Family.LAG


def end_of_broker(event: str, row: ChangeRow, context: ClusterContext) -> Family | None:
    """Return what an event of a broker is evidence of, None if it does not end."""
    if event == EventKind.SHUTTING_DOWN:
        return Family.PLANNED
    if event == EventKind.FENCED:
        if not row.is_shutting_down and context.times.is_of_stall(*context.silent, row.time):
            return Family.STALL
        return Family.PLANNED if row.is_shutting_down else Family.LOSS
    return Family.DISK if event == EventKind.LOG_DIR_OFFLINE else None


def overrun_work(incident: Incident, row: ChangeRow, context: ClusterContext) -> set[str] | None:
    """Return why the work was announced that the absence of a broker overran; None if that escalates nothing.

    A clean stop well after the end of a command is another one, which needs no announcement: it overran no tail. What
    the command did may show for a session longer.
    """
    down = incident.down_now(row.broker)
    if incident.closed_at is not None or down is None:
        return None
    over, session = context.lapsed(row.broker, down.at, row.time), context.times.broker_session
    is_another = over and all(lease.has_ended_command and lease.at + session < down.at for lease in over)
    return None if is_another and row.broker not in incident.announced else {lease.reason for lease in over}


def class_of_stops(incident: Incident) -> IncidentClass:
    """Return the class of an incident in which brokers were stopped and none was lost."""
    if incident.is_unsafe:
        return IncidentClass.UNSAFE_SHUTDOWN
    if incident.overdue:
        return IncidentClass.BROKER_LOSS
    return IncidentClass.ROLLING_RESTART if is_rolling(incident) else IncidentClass.CONTROLLED_SHUTDOWN


def is_rolling(incident: Incident) -> bool:
    """Return whether different brokers were stopped cleanly, one after the other, and none was lost."""
    if incident.lost:
        return False
    seen: set[int] = set()
    fresh = 0
    for turn in _turns(incident):
        fresh += not turn & seen
        seen |= turn
    return fresh > 1


def _turns(incident: Incident) -> list[set[int]]:
    """Return the brokers of each turn: overlapping absences are one turn."""
    turns: list[set[int]] = []
    until: float = -1
    for down in sorted((down for down in incident.downs if down.planned), key=_begin):
        if turns and down.at < until:
            turns[-1].add(down.broker)
        else:
            turns.append({down.broker})
        until = max(until, float("inf") if down.back_at is None else down.back_at)
    return turns


def _begin(down: BrokerAbsence) -> tuple[int, int]:
    return down.at, down.broker
