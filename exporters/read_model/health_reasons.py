"""Reasons why a cluster is not healthy, or not known to be: each reason from the snapshot alone, with what it rests on.

Values only: which reasons a cluster gives is decided by ``cluster_health``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from heapq import nsmallest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streaming.contracts.conditions import Condition
from streaming.contracts.identifiers import Micros
from streaming.contracts.words import utc_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from streaming.contracts.conditions import Spell

T = TypeVar("T", bound=Any)
EXAMPLES: Final = 10


class HealthSeverity(StrEnum):
    """Severity of a reason."""

    CRITICAL = "critical"
    """Reads or writes fail, or leaders cannot be elected."""
    WARNING = "warning"
    """Redundancy is missing, and no announced work explains it."""
    PLANNED = "planned"
    """Redundancy is missing because of work that isrwatch maintenance announced."""
    UNKNOWN = "unknown"
    """The data does not show whether the cluster is healthy."""


NOT_YET_OBSERVED: Final = "not_yet_observed"
"""Reason of a gate, and no condition: the data is from before the time that it must be newer than."""
SEVERITIES: Final[dict[str, tuple[HealthSeverity, ...]]] = {
    Condition.NO_DATA: (HealthSeverity.UNKNOWN,),
    Condition.DATA_STALE: (HealthSeverity.UNKNOWN,),
    NOT_YET_OBSERVED: (HealthSeverity.UNKNOWN,),
    Condition.TABLE_UNREADABLE: (HealthSeverity.UNKNOWN,),
    Condition.MIN_ISR_UNKNOWN: (HealthSeverity.UNKNOWN,),
    Condition.OFFLINE: (HealthSeverity.CRITICAL, HealthSeverity.PLANNED),
    Condition.UNDER_MIN_ISR: (HealthSeverity.CRITICAL, HealthSeverity.PLANNED),
    Condition.NO_CONTROLLER: (HealthSeverity.CRITICAL,),
    Condition.UNCLEAN_ELECTION: (HealthSeverity.CRITICAL,),
    Condition.UNDER_REPLICATED: (HealthSeverity.WARNING,),
    Condition.AT_MIN_ISR: (HealthSeverity.WARNING,),
    Condition.BROKER_DOWN: (HealthSeverity.WARNING,),
    Condition.LOG_DIRECTORY_OFFLINE: (HealthSeverity.WARNING,),
    Condition.QUORUM_VOTER_BEHIND: (HealthSeverity.WARNING,),
    Condition.PRIMARY_SOURCE_LOST: (HealthSeverity.WARNING,),
    Condition.PLANNED_WORK: (HealthSeverity.PLANNED,),
}
"""The conditions that health consists of, each with the severities that it may have, the first by default.

Those that leave everything unknown stand first, then the worst.
"""
BLIND: Final = frozenset({Condition.NO_DATA, Condition.DATA_STALE, NOT_YET_OBSERVED, Condition.TABLE_UNREADABLE})
"""Reasons that cannot be ignored: without data nothing is healthy."""
SUMMARIES: Final[dict[str, str]] = {
    Condition.NO_DATA: "its primary source has reported nothing yet",
    Condition.DATA_STALE: "its data is too old to say anything about now",
    NOT_YET_OBSERVED: "its data is from before the time that it must be newer than",
    Condition.TABLE_UNREADABLE: "tables cannot be read",
    Condition.MIN_ISR_UNKNOWN: "under-replicated partitions whose min.insync.replicas is unknown: may refuse writes",
    Condition.OFFLINE: "partitions have no leader",
    Condition.UNDER_MIN_ISR: "partitions refuse writes with acks=all",
    Condition.NO_CONTROLLER: "no controller leads the metadata quorum",
    Condition.UNCLEAN_ELECTION: "leaders were elected that may lack acknowledged records",
    Condition.UNDER_REPLICATED: "partitions have fewer replicas in sync than assigned",
    Condition.AT_MIN_ISR: "partitions lost a replica, and would refuse writes without another one",
    Condition.BROKER_DOWN: "brokers are fenced or not registered, or are back and have not caught up",
    Condition.LOG_DIRECTORY_OFFLINE: "log directories are offline",
    Condition.QUORUM_VOTER_BEHIND: "voters of the metadata quorum have not caught up with its leader",
    Condition.PRIMARY_SOURCE_LOST: "the metadata log is not read any more, polling took over",
    Condition.PLANNED_WORK: "brokers are down or lack replicas in sync, which announced work explains",
}


def was_ahead(until: int) -> str:
    """Say why data look old although they are not: until when a clock that was ahead has dated them."""
    return f"a clock was ahead, and has dated its data up to {utc_text(Micros(until))}; until then they count as old"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReason:
    """One reason.

    Attributes:
        condition: what is wrong: a condition, or ``NOT_YET_OBSERVED``.
        severity: what that says of the cluster.
        count: of how many things it is true.
        examples: the first of them.
        more: how many of them are not among the examples.
        since: from when the oldest of it lasts without a break, UTC microseconds; None is unknown.
        age_seconds: age of the data that it rests on; None where there is none.
        summary: the reason in words.
        incidents: short ids of what explains it, as far as the table of conditions says.
    """

    condition: str
    severity: HealthSeverity
    count: int
    examples: tuple[str, ...] = ()
    more: int = 0
    since: int | None = None
    age_seconds: float | None = None
    summary: str = ""
    incidents: tuple[str, ...] = ()


def reason_of(  # noqa: PLR0913 - what a reason is made of, by name
    condition: str,
    things: Collection[T],
    name: Callable[[T], str],
    *,
    order: Callable[[T], Any] | None = None,
    since: Callable[[T], int | None] = lambda _: None,
    age_seconds: float | None = None,
    severity: HealthSeverity | None = None,
    spells: Sequence[Spell] = (),
    explained_by: Iterable[Spell] = (),
    open_incidents: Mapping[str, str] = MappingProxyType({}),
    without_rows: Iterable[str] = (),
) -> Iterator[HealthReason]:
    """Yield the reason that some things give, none without any.

    Args:
        condition: that holds.
        things: all of which it is true.
        name: of one of them.
        order: by which the first of them are the examples; None: they are compared with each other.
        since: when it began of one of them, as the snapshot shows; None is unknown.
        age_seconds: age of the data that it rests on.
        severity: None is the first of its condition.
        spells: rows of the same, which may be of only some of the things, or be from before a gap.
        explained_by: rows of what explains it besides, whose incidents are named, too.
        open_incidents: shown ids of the open incidents by their ids. One that explains a row now stands for the one
            that named it at its begin, which may be over.
        without_rows: shown ids of what explains it though no row says so.
    """
    if not things:
        return
    examples = tuple(map(name, nsmallest(EXAMPLES, things, order)))
    begins = (*map(since, things), *map(begin_of, spells))
    yield HealthReason(
        condition=condition,
        severity=severity or SEVERITIES[condition][0],
        count=len(things),
        examples=examples,
        more=len(things) - len(examples),
        since=min((at for at in begins if at is not None), default=None),
        age_seconds=age_seconds,
        summary=SUMMARIES[condition],
        incidents=tuple(sorted({*_names((*spells, *explained_by), open_incidents), *without_rows})),
    )


def begin_of(spell: Spell) -> int:
    """Return since when something lasts without a break; what is over is raised since the begin of its chain."""
    return spell.began_at if spell.ended_at is None else spell.since


def _names(spells: Iterable[Spell], open_incidents: Mapping[str, str]) -> tuple[str, ...]:
    """Return the incidents that explain rows: of what came again the first one only for want of another."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for each in spells:
        now = open_incidents.get(each.explained_by or "")
        if (name := now or each.short_id) is not None:
            names[now is not None or each.ended_at is not None or each.began_at == each.since].add(name)
    return tuple(sorted(names[True] or names[False]))
