"""Cluster facts that incidents need besides the changes: racks, live brokers, followers, the controller. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.changes.maintenance import Lease, decode_leases
from streaming.changes.sources import SILENCE, may_be_primary
from streaming.changes.state import ConfiguredTimes
from streaming.contracts.events import Cause, EventKind, Subject
from streaming.contracts.identifiers import NO_LEADER, BrokerId
from streaming.contracts.observations import SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable


# Evidence in a row of the change log: trouble by cause. Pure; knows causes and events.


class Family(StrEnum):
    """The kind of trouble that one change is evidence of. Classes of incidents are derived from these."""

    LAG = "lag"
    PLANNED = "planned"
    LOSS = "loss"
    DISK = "disk"
    UNCLEAN = "unclean"
    MOVE = "move"
    CONTROLLER = "controller"
    STALL = "stall"
    TWO_PROCESSES = "two_processes"


# Causes that remove brokers, and so open an incident; ``incidents.rules`` reads them with their evidence. All
# others belong to one that is open, or to none: an ISR that grows again, a preferred leader that returns, a new topic.
FAMILY_OF: Final[dict[str, Family]] = {
    Cause.LAG: Family.LAG,
    Cause.LEADER_STALL: Family.LAG,
    Cause.UNKNOWN: Family.LAG,  # between two polls: until the broker itself is reported gone, it lags
    Cause.FENCED: Family.LOSS,
    Cause.CONTROLLER_STALL: Family.STALL,
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
    Cause.TWO_PROCESSES: Family.TWO_PROCESSES,
}

UNRELATED: Final = frozenset({Cause.CREATED, Cause.CONFIG})
BASELINE: Final = "baseline"
HARM: Final = frozenset({EventKind.UNDER_MIN_ISR_BEGAN, EventKind.OFFLINE})
"""The events of a step after which a partition refuses writes."""


class DegradedState(IntEnum):
    """State that conditions count; the second and third are places of the tallies of incidents."""

    MINIMUM_UNKNOWN = 0
    """It lacks replicas, and its minimum is unknown."""
    UNDER_MIN_ISR = 1
    OFFLINE = 2
    AT_MIN_ISR = 3
    """It lacks replicas, and cannot spare another one."""
    MOVING = 4


STATES_OF: Final = tuple(
    tuple(state for state in DegradedState if sum_ >> state & 1) for sum_ in range(1 << len(DegradedState))
)
"""The states by the sum of them."""


class Lacking(NamedTuple):
    """Partitions that a broker does not serve: how many, and how many of them have no leader and it in their ISR."""

    broker: int
    partitions: int
    leaderless: int


class ChangeRow(NamedTuple):
    """The part of a row of ``partition_changes`` that incidents need. Times are UTC microseconds.

    Of a partition: identity and cause, ISR and leader, and its health afterwards; ``proven``: the broker whose removal
    a later record proves to be a clean stop; ``unobserved``: for how long its cluster was not observed, so far;
    ``gap``: how long this partition was not observed directly before, both in microseconds. Of a broker: its events,
    its rack, whether it is registered and not fenced, and the leases of planned work on it. Of a cluster: its
    controller, begin and end of that one's last stall (0: none), the kind of its primary source, ``unobserved``, and
    ``blind_since``: while a full report closes a gap in which it was not observed, the begin of that gap, otherwise 0;
    ``watermark``: up to when it was observed before, 0 if never. Of a source: its time and its events.

    ``because``: the evidence of a cause that a poll infers, in words.

    ``states``: the sum of 1 << ``DegradedState`` over the states of a partition, 0 of one that is deleted or diskless;
    ``lacking``: its replicas that do not serve it, without those that are being added; ``needs_all``: it cannot spare
    one. Of partitions together (subject ``BASELINE``): leader, follower in its ISR, and how often; how many are in each
    state; lacking brokers.
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
    source_kind: str = SourceKind.METADATA_LOG
    primary: str = SourceKind.METADATA_LOG
    is_minimum_unknown: bool = False
    watermark: int = 0
    states_before: int = 0
    states: int = 0
    lacking_before: tuple[BrokerId, ...] = ()
    lacking: tuple[BrokerId, ...] = ()
    needs_all: bool = False
    in_states: tuple[int, ...] = ()
    all_lacking: tuple[Lacking, ...] = ()
    silent_since: int = 0
    silent_until: int = 0
    because: str = ""

    @property
    def gone(self) -> tuple[BrokerId, ...]:
        """Return the brokers that the step removed: from the ISR, or from leadership without a successor."""
        if self.left or self.leader != NO_LEADER or self.leader_before < 0:
            return self.left
        return (self.leader_before,)


# Facts about a cluster while its rows are read.


@dataclass(slots=True)
class ClusterContext:
    """The newest of each, as rows of the change log have it. Owned by ``incidents.IncidentFold``."""

    times: ConfiguredTimes = field(default_factory=ConfiguredTimes)
    racks: dict[int, str] = field(default_factory=dict)
    up: set[int] = field(default_factory=set)
    down: dict[int, bool] = field(default_factory=dict)
    """Brokers that are fenced, not registered or shutting down; True if their registration says the last."""
    in_sync: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(leader, follower in its ISR) to the number of partitions."""
    controller: int = NO_LEADER
    primary_source: str = SourceKind.NONE
    """Kind of the primary source."""
    silent: tuple[int, int] = (0, 0)
    """Begin and end of the last stall of a controller; 0 for none."""
    leases: dict[int, tuple[Lease, ...]] = field(default_factory=dict)
    """Announced planned work by broker."""
    name: str = ""
    """Name of the cluster; that of a row may be another one's, of a collector that calls it differently."""
    blind_since: int = 0
    """While a full report closes a gap without observation of the cluster: the begin of the gap; otherwise 0."""
    in_states: list[int] = field(default_factory=lambda: [0] * len(DegradedState))
    """Number of partitions in each ``DegradedState``."""
    lacking: Counter[int] = field(default_factory=Counter)
    """Number of partitions that each broker is a replica of and does not serve."""
    leaderless: Counter[int] = field(default_factory=Counter)
    """Number of those that have no leader, and it in their ISR: it lacks nothing, unless it is down."""

    now: int = field(default=0, compare=False)
    """Time of the newest change of its partitions, if it was read from tables."""
    cluster_id: str = field(default="", compare=False)
    version: int = field(default=-1, compare=False)

    def standing_row(self) -> ChangeRow:
        """Return a row that stands for those up to a start."""
        return ChangeRow(self.version, self.cluster_id, self.name, Subject.CLUSTER, self.now, self.now)

    def with_name(self, row: ChangeRow) -> ChangeRow:
        """Return a row with the name of the cluster; a row of the cluster itself brings it."""
        if row.subject == Subject.CLUSTER or self.name in ("", row.cluster):
            return row
        return row._replace(cluster=self.name)

    def moves_time(self, row: ChangeRow) -> bool:
        """Return whether a row says how late it is: one of the primary source, which others may be far ahead of."""
        return row.subject != BASELINE and may_be_primary(row.source_kind, self.primary_source)

    def add_in_sync(self, in_sync: Iterable[tuple[int, int, int]], sign: int = 1) -> None:
        """Count partitions of which there is no single row: leader, follower in its ISR, how many."""
        for leader, follower, count in in_sync:
            self.in_sync[leader, follower] += sign * count

    def follow(self, row: ChangeRow) -> None:
        """Follow a row, of whatever it is."""
        if row.subject in (BASELINE, Subject.PARTITION):
            self.count(row, 1)
        elif row.subject == Subject.BROKER:
            self.broker(row)
        elif row.subject == Subject.CLUSTER:
            self.cluster(row)

    def count(self, row: ChangeRow, sign: int) -> None:
        """Count who is in sync by a step of a partition, or first states of several: 1; -1 takes it back."""
        self.add_in_sync(row.in_sync, sign)
        for follower in row.isr_before:
            self.in_sync[row.leader_before, follower] -= sign
        for follower in () if row.is_deleted else row.isr:
            self.in_sync[row.leader, follower] += sign
        if row.states != row.states_before:
            for state in STATES_OF[row.states ^ row.states_before]:
                self.in_states[state] += sign if row.states >> state & 1 else -sign
        if row.lacking != row.lacking_before:
            for broker in row.lacking_before:
                self.lacking[broker] -= sign
            for broker in row.lacking:
                self.lacking[broker] += sign
        if NO_LEADER in (row.leader_before, row.leader):
            self._count_leaderless(row, sign)
        if row.in_states:
            self.add_degraded(row.in_states, row.all_lacking, sign)

    def _count_leaderless(self, row: ChangeRow, sign: int) -> None:
        for broker in set(row.lacking_before).intersection(row.isr_before):
            self.leaderless[broker] -= sign
        for broker in set(row.lacking).intersection(row.isr):
            self.leaderless[broker] += sign

    def add_degraded(self, in_states: Iterable[int], lacking: Iterable[Lacking], sign: int = 1) -> None:
        """Count partitions of which there is no single row: how many are in each state, and lack which brokers."""
        for state, count in zip(DegradedState, in_states, strict=True):
            self.in_states[state] += sign * count
        for broker, partitions, leaderless in lacking:
            self.lacking[broker] += sign * partitions
            if leaderless:
                self.leaderless[broker] += sign * leaderless

    def broker(self, row: ChangeRow) -> None:
        """Follow a step of a broker."""
        self.racks[row.broker] = row.rack
        self.set_up(row.broker, is_up=row.is_up, is_shutting_down=row.is_shutting_down)
        self.set_leases(row.broker, row.leases)

    def set_up(self, broker: int, *, is_up: bool, is_shutting_down: bool) -> None:
        """Set whether a broker is registered and not fenced, and whether it is shutting down: then it is in no ISR."""
        if is_up and not is_shutting_down:
            self.up.add(broker)
            self.down.pop(broker, None)
        else:
            self.up.discard(broker)
            self.down[broker] = is_shutting_down

    def forget(self, broker: int | None) -> None:
        """Forget a broker that did not exist yet; None: what was not known of the cluster yet."""
        if broker is None:
            self.controller, self.primary_source, self.times = NO_LEADER, SourceKind.NONE, ConfiguredTimes()
            self.name, self.blind_since, self.silent = "", 0, (0, 0)
            return
        self.racks.pop(broker, None)
        self.up.discard(broker)
        self.down.pop(broker, None)
        self.leases.pop(broker, None)

    def is_down(self, broker: int) -> bool:
        """Return whether a broker is known to be fenced, shutting down, or not registered."""
        return broker in self.down

    def was_stopped(self, broker: int) -> bool:
        """Return whether a broker that is down was shutting down."""
        return self.down.get(broker, False)

    def set_leases(self, broker: int, leases: str | None) -> None:
        """Set the leases of a broker, as its state has them."""
        if leases:
            self.leases[broker] = decode_leases(leases)
        else:
            self.leases.pop(broker, None)

    def is_planned(self, brokers: Iterable[int], since: int, moment: int) -> bool:
        """Return whether planned work on every one of these brokers was announced before something happened to them.

        Args:
            brokers: the ones that it happened to.
            since: begin of the window in which it happened, if that was observed. A lease does not reach back, so it
                must have begun by then, but for the time that lies between two polls.
            moment: end of the window.
        """
        return all(self._holding(broker, since, moment) for broker in brokers)

    def announced_work(self, brokers: Iterable[int], since: int, moment: int) -> set[str]:
        """Return why work on any of these brokers was announced, as ``is_planned`` has it."""
        return {lease.reason for broker in brokers for lease in self._holding(broker, since, moment)}

    def _holding(self, broker: int, since: int, moment: int) -> list[Lease]:
        latest = min(since, self.blind_since or since) + SILENCE
        return [each for each in self.leases.get(broker, ()) if each.holds(moment) and each.since <= latest]

    def lapsed(self, broker: int, since: int, moment: int) -> list[Lease]:
        """Return the leases of a broker that lapsed from one moment to another, and were not ended."""
        return [
            lease
            for lease in self.leases.get(broker, ())
            if not lease.is_open and lease.ended_at is None and since <= lease.until <= moment
        ]

    def has_open_lease(self, broker: int) -> bool:
        """Return whether work on a broker is announced, as far as rows have said."""
        return any(lease.is_open for lease in self.leases.get(broker, ()))

    def held(self, moment: int) -> frozenset[int]:
        """Return the brokers for which planned work was announced for a moment."""
        return frozenset(
            broker for broker, leases in self.leases.items() if any(lease.holds(moment) for lease in leases)
        )

    def cluster(self, row: ChangeRow) -> None:
        """Follow a step of the cluster."""
        self.controller, self.primary_source, self.blind_since = row.controller, row.primary, row.blind_since
        self.name, self.silent = row.cluster, (row.silent_since, row.silent_until)
        self.times = ConfiguredTimes().configured(row.lag_millis, row.session_millis)

    def follows_others(self, follower: int, leader: int) -> bool:
        """Return whether a broker is in the ISR of partitions that yet another broker leads."""
        return any(
            count > 0 and of_follower == follower and of_leader >= 0 and of_leader not in (leader, follower)
            for (of_leader, of_follower), count in self.in_sync.items()
        )

    def may_run(self, brokers: Iterable[int], moment: int) -> bool:
        """Return whether brokers were up until a controller that stood still removed them: others were missing before.

        What is elected in their place follows from that alone.
        """
        return self.times.is_of_stall(*self.silent, moment) and not any(map(self.is_down, brokers))

    def is_none_left(self, lost: set[int]) -> bool:
        """Return whether these are several brokers, and no other one is up."""
        return len(lost) > 1 and not self.up - lost

    def lost_rack(self, lost: set[int]) -> str:
        """Return the rack of which these brokers are all, and no other; empty if there is none, or only one broker."""
        racks = {self.racks.get(broker, "") for broker in lost}
        rack = racks.pop() if len(racks) == 1 else ""
        is_whole = not any(self.racks.get(broker) == rack for broker in self.up - lost)
        return rack if len(lost) > 1 and is_whole else ""
