"""Reasons why a cluster is not healthy, or not known to be: each reason from the snapshot alone, with what it rests on.

Values only: which reasons a cluster gives is decided by ``cluster_health``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

T = TypeVar("T", bound=Any)
EXAMPLES: Final = 10


class ReasonKind(StrEnum):
    """The reasons, those that leave everything unknown first, then the worst first."""

    NO_DATA = "no_data"
    STALE = "stale"
    NOT_YET_OBSERVED = "not_yet_observed"
    TABLE_UNREADABLE = "table_unreadable"
    UNKNOWN_MIN_ISR = "unknown_min_isr"
    OFFLINE = "offline"
    UNDER_MIN_ISR = "under_min_isr"
    NO_CONTROLLER = "no_controller"
    HARMFUL_INCIDENT = "harmful_incident"
    UNDER_REPLICATED = "under_replicated"
    AT_MIN_ISR = "at_min_isr"
    BROKER_MISSING = "broker_missing"
    BROKER_FENCED = "broker_fenced"
    LOG_DIRECTORY_OFFLINE = "log_directory_offline"
    QUORUM_VOTER_BEHIND = "quorum_voter_behind"
    PRIMARY_SOURCE_LOST = "primary_source_lost"
    PLANNED_BROKER_OUTAGE = "planned_broker_outage"
    PLANNED_UNDER_REPLICATION = "planned_under_replication"


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


SEVERITY: Final = {
    **dict.fromkeys(ReasonKind, HealthSeverity.WARNING),
    **dict.fromkeys(
        (
            ReasonKind.NO_DATA,
            ReasonKind.STALE,
            ReasonKind.NOT_YET_OBSERVED,
            ReasonKind.TABLE_UNREADABLE,
            ReasonKind.UNKNOWN_MIN_ISR,
        ),
        HealthSeverity.UNKNOWN,
    ),
    **dict.fromkeys((ReasonKind.OFFLINE, ReasonKind.UNDER_MIN_ISR, ReasonKind.NO_CONTROLLER), HealthSeverity.CRITICAL),
    **dict.fromkeys((ReasonKind.PLANNED_BROKER_OUTAGE, ReasonKind.PLANNED_UNDER_REPLICATION), HealthSeverity.PLANNED),
}
BLIND: Final = frozenset(
    {ReasonKind.NO_DATA, ReasonKind.STALE, ReasonKind.NOT_YET_OBSERVED, ReasonKind.TABLE_UNREADABLE}
)
"""Reasons that cannot be ignored: without data nothing is healthy."""
SUMMARIES: Final = {
    ReasonKind.NO_DATA: "its primary source has reported nothing yet",
    ReasonKind.STALE: "its data is too old to say anything about now",
    ReasonKind.NOT_YET_OBSERVED: "its data is from before the time that it must be newer than",
    ReasonKind.TABLE_UNREADABLE: "tables cannot be read",
    ReasonKind.UNKNOWN_MIN_ISR: "under-replicated partitions whose min.insync.replicas is unknown: may refuse writes",
    ReasonKind.OFFLINE: "partitions have no leader",
    ReasonKind.UNDER_MIN_ISR: "partitions refuse writes with acks=all",
    ReasonKind.NO_CONTROLLER: "no controller leads the metadata quorum",
    ReasonKind.HARMFUL_INCIDENT: "incidents are open",
    ReasonKind.UNDER_REPLICATED: "partitions have fewer replicas in sync than assigned",
    ReasonKind.AT_MIN_ISR: "partitions lost a replica, and would refuse writes without another one",
    ReasonKind.BROKER_MISSING: "brokers with replicas are not registered",
    ReasonKind.BROKER_FENCED: "brokers are fenced",
    ReasonKind.LOG_DIRECTORY_OFFLINE: "log directories are offline",
    ReasonKind.QUORUM_VOTER_BEHIND: "voters of the metadata quorum have not caught up with its leader",
    ReasonKind.PRIMARY_SOURCE_LOST: "the metadata log is not read any more, polling took over",
    ReasonKind.PLANNED_BROKER_OUTAGE: "brokers are away, which announced work explains",
    ReasonKind.PLANNED_UNDER_REPLICATION: "partitions lack replicas, all of them on brokers with announced work",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReason:
    """One reason.

    Attributes:
        reason: what is wrong.
        severity: what that says of the cluster.
        count: of how many things it is true.
        examples: the first of them.
        more: how many of them are not among the examples.
        since: when the oldest of it began, UTC microseconds; None is unknown.
        age_seconds: age of the data that it rests on; None where there is none.
        summary: the reason in words.
    """

    reason: ReasonKind
    severity: HealthSeverity
    count: int
    examples: tuple[str, ...] = ()
    more: int = 0
    since: int | None = None
    age_seconds: float | None = None
    summary: str = ""


def reason_of(  # noqa: PLR0913 - what a reason is made of, by name
    kind: ReasonKind,
    things: Collection[T],
    name: Callable[[T], str],
    *,
    order: Callable[[T], Any] | None = None,
    since: Callable[[T], int | None] = lambda _: None,
    age_seconds: float | None = None,
) -> Iterator[HealthReason]:
    """Yield the reason that some things give, none without any.

    Args:
        kind: of the reason.
        things: all of which it is true.
        name: of one of them.
        order: by which the first of them are the examples; None: they are compared with each other.
        since: when it began of one of them; None is unknown.
        age_seconds: age of the data that it rests on.
    """
    if not things:
        return
    examples = tuple(map(name, nsmallest(EXAMPLES, things, order)))
    yield HealthReason(
        reason=kind,
        severity=SEVERITY[kind],
        count=len(things),
        examples=examples,
        more=len(things) - len(examples),
        since=min((at for at in map(since, things) if at is not None), default=None),
        age_seconds=age_seconds,
        summary=SUMMARIES[kind],
    )
