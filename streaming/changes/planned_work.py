"""What counts as planned: the one place that decides it. Pure.

Planned is proven, part by part: a removal is, if the metadata log proves a controlled shutdown or shows a reassignment,
or if planned work on each removed broker was announced before; a broker's end is, if it was shutting down, or if its
work was announced. An incident is, if each of its parts was, the stopped brokers came back and caught up, and no
partition refused writes or lost its leader by a stop, by a reassignment, or by a broker that ran and lagged although
work was announced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.changes.incident_signals import FAMILY_OF, HARM, ChangeRow, Family
from streaming.contracts.events import Cause, EventKind, Evidence
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.incidents import IncidentClass

if TYPE_CHECKING:
    from streaming.changes.absences import BrokerAbsence
    from streaming.changes.cluster_context import ClusterContext
    from streaming.changes.incident import Incident
    from streaming.contracts.identifiers import BrokerId


_ANNOUNCED: Final = frozenset({Family.LAG, Family.LOSS})
"""What is planned while work on the broker is announced: an unclean election never is, nor is a lost directory. Whether
partitions went offline or refused writes is judged with the incident."""


class Trouble(NamedTuple):
    """What a partition's step is evidence of, and which brokers it lacks by that.

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
    if family is Family.PLANNED and row.evidence != Evidence.PROVEN:
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
    if gone and row.cause in _OF_ANY_KIND and all(map(context.is_down, gone)):
        family = Family.PLANNED if all(map(context.was_stopped, gone)) else Family.LOSS
    refuses &= row.cause in (Cause.LAG, Cause.LEADER_STALL)
    if family not in _ANNOUNCED or not gone or refuses or not context.is_planned(gone, row.since, row.time):
        return Trouble(family, gone)
    return Trouble(Family.PLANNED, gone, is_announced=True)


_OF_ANY_KIND: Final = frozenset({Cause.UNKNOWN, Cause.CREATED, Cause.CONFIG, Cause.REASSIGNMENT})


def _is_unproven_move(row: ChangeRow) -> bool:
    return row.cause == Cause.REASSIGNMENT and row.evidence != Evidence.PROVEN


def _family_of_lacking(row: ChangeRow) -> Family:
    """Return what a partition that refuses writes by no removal is evidence of, while nobody is known to be down.

    A minimum was raised, or replicas were added, or it was seen for the first time after a gap.
    """
    if row.leader == NO_LEADER:
        return Family.LOSS
    return Family.MOVE if row.is_moving and row.cause != Cause.REASSIGNMENT else Family.LAG


def end_of_broker(event: str, row: ChangeRow) -> Family | None:
    """Return what an event of a broker is evidence of, None if it does not end."""
    if event == EventKind.SHUTTING_DOWN:
        return Family.PLANNED
    if event == EventKind.FENCED:
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
