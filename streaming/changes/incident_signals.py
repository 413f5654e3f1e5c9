"""What a row of the change log is evidence of: trouble by cause. Pure; knows causes and events."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from streaming.contracts.events import Cause, EventKind
from streaming.contracts.identifiers import NO_LEADER, BrokerId
from streaming.contracts.observations import SourceKind


class Family(StrEnum):
    """The kind of trouble that one change is evidence of. Classes of incidents are derived from these."""

    LAG = "lag"
    PLANNED = "planned"
    LOSS = "loss"
    DISK = "disk"
    UNCLEAN = "unclean"
    MOVE = "move"
    CONTROLLER = "controller"


# Causes that remove brokers, and so open an incident; ``planned_work.family_of`` reads them with their evidence. All
# others belong to one that is open, or to none: an ISR that grows again, a preferred leader that returns, a new topic.
FAMILY_OF: Final[dict[str, Family]] = {
    Cause.LAG: Family.LAG,
    Cause.LEADER_STALL: Family.LAG,
    Cause.UNKNOWN: Family.LAG,  # between two polls: until the broker itself is reported gone, it lags
    Cause.FENCED: Family.LOSS,
    # A loss until its clean return is reported, then a planned stop (``Incident.take_for_planned``). Alerts count it as
    # planned at once: this cause is only known when the broker has registered again.
    Cause.RESTART: Family.LOSS,
    Cause.UNCLEAN_RESTART: Family.LOSS,
    Cause.UNREGISTERED: Family.LOSS,
    Cause.CONTROLLED_SHUTDOWN: Family.PLANNED,
    Cause.DIR_FAILURE: Family.DISK,
    # Not last_known_leader: Kafka counts it as unclean, but it is the replica that led last.
    Cause.UNCLEAN_ELECTION: Family.UNCLEAN,
    Cause.REASSIGNMENT: Family.MOVE,
}

UNRELATED: Final = frozenset({Cause.CREATED, Cause.CONFIG})
BASELINE: Final = "baseline"
HARM: Final = frozenset({EventKind.UNDER_MIN_ISR_BEGAN, EventKind.OFFLINE})
"""The events of a step after which a partition refuses writes."""


class ChangeRow(NamedTuple):
    """What incidents need of one row of ``partition_changes``. Times are UTC microseconds.

    Of a partition: identity and cause, ISR and leader, and its health afterwards; ``proven``: the broker whose removal
    a later record proves to be a clean stop; ``unobserved``: for how long nobody has observed its cluster, so far;
    ``gap``: for how long nobody observed this partition directly before, both in microseconds. Of a broker: its events,
    its rack, whether it is registered and not fenced, and the leases of planned work on it. Of a cluster: its
    controller, the kind of its primary source, ``unobserved``, and ``blind_since``: while a full report closes a gap in
    which nobody observed it, the begin of that gap, otherwise 0. Of a source: its time alone. Of first states of
    partitions together (subject ``BASELINE``): leader, follower in its ISR, and how often.
    """

    version: int
    cluster_id: str
    cluster: str
    subject: str
    since: int
    time: int
    event_ids: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    cause: str | None = None
    topic_id: str = ""
    topic: str = ""
    partition: int = -1
    left: tuple[BrokerId, ...] = ()
    joined: tuple[int, ...] = ()
    leader_before: BrokerId = NO_LEADER
    leader: BrokerId = NO_LEADER
    replicas: tuple[BrokerId, ...] = ()
    isr: tuple[BrokerId, ...] = ()
    is_under_replicated: bool = False
    is_under_min_isr: bool = False
    is_offline: bool = False
    is_moving: bool = False
    is_deleted: bool = False
    broker: int = -1
    is_shutting_down: bool = False
    evidence: str | None = None
    proven: int | None = None
    unobserved: int = 0
    gap: int = 0
    blind_since: int = 0
    isr_before: tuple[int, ...] = ()
    rack: str = ""
    is_up: bool = False
    controller: int = NO_LEADER
    lag_millis: int = 0
    session_millis: int = 0
    in_sync: tuple[tuple[int, int, int], ...] = ()
    leases: str = ""
    authority: str = SourceKind.METADATA_LOG
    primary: str = SourceKind.METADATA_LOG
    is_minimum_unknown: bool = False

    @property
    def gone(self) -> tuple[BrokerId, ...]:
        """Return the brokers that the step removed: from the ISR, or from leadership where nobody leads afterwards."""
        if self.left or self.leader != NO_LEADER or self.leader_before == NO_LEADER:
            return self.left
        return (self.leader_before,)
