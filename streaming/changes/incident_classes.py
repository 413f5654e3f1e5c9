"""The class of an incident and its suspects. Pure.

The class follows from all changes so far, so it may become graver while the incident is open: a follower that lagged
turns out to be a broker that died; clean stops of several brokers in turn are one rolling restart.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from streaming.changes.incident_signals import Family
from streaming.changes.lag_attribution import most_blamed
from streaming.changes.planned_work import class_of_stops
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.incidents import PLANNED_CLASSES, IncidentClass

if TYPE_CHECKING:
    from streaming.changes.configured_times import ConfiguredTimes
    from streaming.changes.incident import Incident

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
    if incident.disks:
        return IncidentClass.DISK_FAILURE
    if incident.lost:
        return IncidentClass.RACK_LOSS if incident.rack else IncidentClass.BROKER_LOSS
    if incident.base is Family.LAG:
        return _verdict(incident, times)
    if incident.base is Family.PLANNED:
        return class_of_stops(incident)
    if incident.base is Family.MOVE:
        is_unsafe = incident.refused or incident.leaderless
        return IncidentClass.UNSAFE_REASSIGNMENT if is_unsafe else IncidentClass.REASSIGNMENT
    return {
        Family.CONTROLLER: IncidentClass.CONTROLLER_FAILOVER,
        Family.UNCLEAN: IncidentClass.UNCLEAN_ELECTION,
    }.get(incident.base, IncidentClass.BROKER_LOSS)


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
    and where one leader removed one follower that follows nobody else, no record shows which of the two is slow.
    """
    suspects = _suspects(incident, kind, times)
    if kind in PLANNED_CLASSES:
        return dict.fromkeys(suspects, 0.0)
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
    if kind is IncidentClass.DISK_FAILURE:
        return tuple(sorted(incident.disks))
    if kind in _LAG_CLASSES:
        return _lag_suspects(incident, kind, times)
    if kind in (IncidentClass.BROKER_LOSS, IncidentClass.RACK_LOSS):
        return tuple(sorted(incident.lost or incident.overdue))
    away = incident.lost | incident.planned
    if kind is IncidentClass.UNCLEAN_ELECTION:
        away = incident.unclean_left or away
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
