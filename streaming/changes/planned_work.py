"""What counts as planned: the one place that decides it. Pure.

Planned is proven, part by part: a removal is, if the metadata log proves a controlled shutdown or shows a reassignment,
or if planned work on each removed broker was announced before; a broker's end is, if it was shutting down, or if its
work was announced. An incident is, if each of its parts was, the stopped brokers came back, and no partition refused
writes or lost its leader by a stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.incident_signals import FAMILY_OF, ChangeRow, Family
from streaming.contracts.events import EventKind, Evidence
from streaming.contracts.incidents import IncidentClass

if TYPE_CHECKING:
    from streaming.changes.incident import BrokerAbsence, Incident


_ANNOUNCED: Final = frozenset({Family.LAG, Family.LOSS})


def family_of(row: ChangeRow) -> Family | None:
    """Return what a partition's step is evidence of, None if it is of no trouble."""
    family = FAMILY_OF.get(row.cause or "")
    return Family.LOSS if family is Family.PLANNED and row.evidence != Evidence.PROVEN else family


def announced(family: Family) -> Family:
    """Return what trouble of a broker is evidence of while planned work on it is announced.

    An unclean election is never planned, nor is a lost directory. Whether partitions went offline or refused writes is
    judged with the incident.
    """
    return Family.PLANNED if family in _ANNOUNCED else family


def end_of_broker(event: str, row: ChangeRow) -> Family | None:
    """Return what an event of a broker is evidence of, None if it does not end."""
    if event == EventKind.SHUTTING_DOWN:
        return Family.PLANNED
    if event == EventKind.FENCED:
        return Family.PLANNED if row.is_shutting_down else Family.LOSS
    return Family.DISK if event == EventKind.LOG_DIR_OFFLINE else None


def class_of_stops(incident: Incident) -> IncidentClass:
    """Return the class of an incident in which brokers were stopped and none was lost."""
    if incident.harmed_by & incident.planned:
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
