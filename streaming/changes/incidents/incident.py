"""One incident in progress: what the changes so far have shown of it. Pure; times are UTC microseconds.

Its size grows with what it touched: a number per partition, a little more per partition that is degraded because of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from streaming.changes.incidents.context import ChangeRow, Family
from streaming.changes.incidents.lag_attribution import BrokerAbsence, LagEpisode, LagReport, overdue
from streaming.contracts.events import Cause, EventKind, Evidence, IncidentClass
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.observations import SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.changes.state import ConfiguredTimes

# Partitions that are degraded because of an incident: which brokers they lack, how many they are, and for how long.


TopicPartition = tuple[str, int]
UNDER_MIN_ISR: Final = 1
OFFLINE: Final = 2
"""Places in ``DegradedPartition.states``."""


@dataclass(slots=True)
class DegradedCount:
    """Count of partitions in a degraded state: now, at most, the time in sum, and the time that there were any.

    The order of the fields is that of the stored document (``incident_document``).
    """

    now: int = 0
    peak: int = 0
    partition_micros: int = 0
    wall_micros: int = 0
    at: int = 0

    def move(self, by: int, moment: int) -> None:
        """Count partitions in or out."""
        self.advance(moment)
        self.now += by
        self.peak = max(self.peak, self.now)

    def advance(self, moment: int) -> None:
        """Advance to a moment."""
        passed = max(0, moment - self.at) if self.at else 0
        self.partition_micros += passed * self.now
        self.wall_micros += passed if self.now else 0
        self.at = max(self.at, moment)

    def skip(self, micros: int) -> None:
        """Count nothing for a time before the next moment."""
        self.at += micros if self.at else 0

    def add(self, other: DegradedCount) -> None:
        """Add another one's times. Peaks at different times do not add up, and a partition may be in both."""
        self.partition_micros += other.partition_micros
        self.wall_micros += other.wall_micros
        self.peak = max(self.peak, other.peak)


@dataclass(frozen=True, slots=True)
class DegradedPartition:
    """A partition that is degraded because of an incident: the missing brokers, and its states."""

    missing: frozenset[int]
    states: tuple[bool, bool, bool] = (False, False, False)
    """Under-replicated, under min ISR, offline."""
    needs_all: bool = False
    """It has one replica, or as many as its minimum: it cannot spare any."""


HEALTHY: Final = DegradedPartition(frozenset())


@lru_cache(maxsize=4096)
def still_missing(
    missing: frozenset[int], gone: tuple[int, ...], replicas: tuple[int, ...], back: tuple[int, ...]
) -> frozenset[int]:
    """Return the brokers that are missing now. Cached: in a storm thousands of partitions give the same few answers."""
    return (missing | frozenset(gone)) & frozenset(replicas) - frozenset(back)


@lru_cache(maxsize=4096)
def degraded(missing: frozenset[int], states: tuple[bool, bool, bool], needs_all: bool) -> DegradedPartition:  # noqa: FBT001 - as its fields
    """Return a value; the same object for the thousands of partitions that are degraded alike."""
    return DegradedPartition(missing, states, needs_all)


EVIDENCE_KEPT: Final = 20
"""Event ids that an incident lists; the others are only counted."""
SENTENCES_KEPT: Final = 6

_COUNT_OF_EVENT: Final[dict[str, str]] = {
    EventKind.ISR_SHRINK: "isr_shrinks",
    EventKind.ISR_EXPAND: "isr_expands",
    EventKind.LEADER_CHANGE: "leader_changes",
    EventKind.UNCLEAN_ELECTION: "unclean_elections",
}


@dataclass(slots=True, kw_only=True)
class Incident:
    """One incident as far as the changes show it. Owned by ``incidents.IncidentFold``.

    The names of the fields are keys of the stored document (``incident_document``).
    """

    incident_id: str
    cluster_id: str
    cluster: str
    base: Family
    opened_at: int
    updated_at: int
    version: int
    closed_at: int | None = None
    merged_into: str | None = None

    blamed: Counter[int] = field(default_factory=Counter)
    departures: Counter[LagReport] = field(default_factory=Counter)
    """(leader that expelled, or ``NO_LEADER`` where the controller did; broker that left) to the number of ISRs."""
    lost: set[int] = field(default_factory=set)
    fenced: set[int] = field(default_factory=set)
    """Brokers of which only this is proven: they were lost, or led nothing and were stopped cleanly."""
    proven_lost: set[int] = field(default_factory=set)
    """Brokers of whose loss there is more evidence than that."""
    lost_at: int = 0
    planned: set[int] = field(default_factory=set)
    announced: set[int] = field(default_factory=set)
    """Those that went down, or left ISRs, while work on them was announced: no clean stop is proven."""
    work: set[str] = field(default_factory=set)
    """Why work on stopped brokers was announced, as it was given."""
    overran_at: int = 0
    """Time at which announced work ended while its broker was not back."""
    disks: set[int] = field(default_factory=set)
    downs: list[BrokerAbsence] = field(default_factory=list)
    unclean_left: set[int] = field(default_factory=set)
    """Last leaders before an unclean election, and the lost brokers that could have led."""
    harmed_by: set[int] = field(default_factory=set)
    """Brokers whose removal began to refuse writes, or left no leader."""
    overdue: set[int] = field(default_factory=set)
    """Brokers that were stopped, and stayed away, or did not catch up, for longer than a restart takes."""
    rack: str = ""
    """The rack of which all brokers, and no other, were lost."""
    is_none_left: bool = False
    """True if no broker was up any more: they may run, and not reach the controllers, who have fenced them."""
    refused: set[str] = field(default_factory=set)
    """Ids of the topics with partitions that were under min ISR."""
    unknown: set[str] = field(default_factory=set)
    """Ids of the topics with degraded partitions of unknown min ISR, which may have refused writes."""
    leaderless: set[str] = field(default_factory=set)
    """Ids of the topics with partitions that had no leader."""
    controllers: set[int] = field(default_factory=set)
    """Nodes that were the active controller before an election, or stood still."""
    elected: set[int] = field(default_factory=set)
    """Nodes that became the active controller, one of ``controllers`` if it restarted."""
    innocent: set[int] = field(default_factory=set)
    """Brokers that the controller fenced because it stood still itself, and that have not turned out to be lost."""
    rejoined: set[int] = field(default_factory=set)
    """Those of them that a leader has added to an ISR since: they fetched, so they ran."""
    doubled: set[int] = field(default_factory=set)
    """Brokers with whose id two processes run."""
    silence: int = 0
    """Microseconds for which the controller stood still, at most."""
    episode: LagEpisode | None = None
    cut: tuple[int, ...] = ()
    """Brokers of the smaller side of the last network split that is over."""
    stalled: tuple[int, ...] = ()
    """Leaders that stood still, of the episodes that are over."""
    verdicts: Counter[str] = field(default_factory=Counter)
    """Microseconds by verdict, of the episodes that are over."""

    touched: dict[str, set[int]] = field(default_factory=dict)
    unclean: set[TopicPartition] = field(default_factory=set)
    """Partitions that elected a leader uncleanly, each once however often it did."""
    topics: dict[str, str] = field(default_factory=dict)
    held: dict[TopicPartition, DegradedPartition] = field(default_factory=dict)
    alike: Counter[DegradedPartition] = field(default_factory=Counter)
    """Number of partitions that are held alike: very many are. Follows from ``held``."""
    moving: set[TopicPartition] = field(default_factory=set)
    unobserved: int | None = None
    """Time in all without observation, as the cluster's partitions have it; None before the first of their rows."""
    skipped_at: int = 0
    """End of the last gap in which partitions were not observed that had changed meanwhile."""
    tallies: tuple[DegradedCount, DegradedCount, DegradedCount] = field(
        default_factory=lambda: (DegradedCount(), DegradedCount(), DegradedCount())
    )

    is_polled: bool = False
    """True if causes were inferred from polls."""
    because: list[str] = field(default_factory=list)
    """The evidence of these causes, in words; a few sentences, each once."""
    causes: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    evidence: list[str] = field(default_factory=list)
    evidence_count: int = 0

    @property
    def is_under_way(self) -> bool:
        """True if a partition is still degraded, or being reassigned, because of it."""
        return bool(self.held or self.moving)

    @property
    def is_recovered(self) -> bool:
        """True if nothing is degraded because of it any more, and every broker that went away is back."""
        return not self.is_under_way and all(down.back_at is not None for down in self.downs)

    @property
    def is_elected_by_stall(self) -> bool:
        """True if leaders were elected uncleanly in place of brokers that ran while the controller stood still."""
        return bool(self.unclean_left and self.controllers) and self.unclean_left <= self.innocent

    @property
    def is_unsafe(self) -> bool:
        """True if brokers were stopped cleanly, and partitions refused writes or had no leader because of that."""
        return self.base is Family.PLANNED and not self.harmed_by.isdisjoint(self.planned)

    @property
    def is_only_lag(self) -> bool:
        """True if it has shown nothing graver than lag."""
        return self.base is Family.LAG and not self.lost

    @property
    def missing(self) -> frozenset[int]:
        """The brokers that a partition lacks now because of it."""
        return frozenset().union(*(held.missing for held in self.alike))

    @property
    def stopped(self) -> set[int]:
        """The brokers that work is done on: stopped cleanly, or announced, and not overdue."""
        return self.planned - self.lost - self.overdue

    def planned_now(self, place: int) -> int:
        """Count the partitions in a state that cannot spare a replica, and lack only brokers that work is done on."""
        if not self.planned or not self.tallies[place].now:
            return 0
        stopped, are_alike = self.stopped, self.alike.items()
        return sum(
            count for held, count in are_alike if held.needs_all and held.states[place] and held.missing <= stopped
        )

    @property
    def only_report(self) -> LagReport | None:
        """The report of lag if all are of one leader about one follower."""
        reports = [pair for pair in self.departures if pair[0] != NO_LEADER]
        return reports[0] if len(reports) == 1 else None

    def holds(self, key: TopicPartition, brokers: Iterable[int]) -> bool:
        """Return whether a partition lacks one of these brokers because of this incident."""
        return not self.held.get(key, HEALTHY).missing.isdisjoint(brokers)

    def has_touched(self, key: TopicPartition) -> bool:
        """Return whether a partition was ever part of it."""
        return key[1] in self.touched.get(key[0], ())

    def down_now(self, broker: int) -> BrokerAbsence | None:
        """Return the absence of a broker that is not over, if there is one."""
        return next((down for down in reversed(self.downs) if down.broker == broker and down.back_at is None), None)

    def record(self, row: ChangeRow) -> None:
        """Count one row as part of this incident."""
        self.updated_at = max(self.updated_at, row.time)
        self.opened_at = min(self.opened_at, row.since)
        self.version = row.version
        self.is_polled |= row.source_kind == SourceKind.POLL and row.evidence is not None
        if row.because and row.because not in self.because and len(self.because) < SENTENCES_KEPT:
            self.because.append(row.because)
        self.causes.update([row.cause] if row.cause and row.events else ())  # eligibility alone is no event
        for event in row.events:
            if event in _COUNT_OF_EVENT:
                self.counts[_COUNT_OF_EVENT[event]] += 1
        if EventKind.UNCLEAN_ELECTION in row.events:
            self.unclean.add((row.topic_id, row.partition))
        if row.topic_id:
            self.touched.setdefault(row.topic_id, set()).add(row.partition)
            self.topics[row.topic_id] = row.topic
        self.evidence_count += len(row.event_ids)
        if len(self.evidence) < EVIDENCE_KEPT:
            self.evidence += row.event_ids[: EVIDENCE_KEPT - len(self.evidence)]

    def hold(self, row: ChangeRow, times: ConfiguredTimes, missing: Iterable[int] = ()) -> bool:
        """Update whether a partition is degraded because of this incident; return whether that has changed.

        A broker that is back in the ISR, or not assigned any more, is not missing. While a partition is reassigned the
        replicas that are added fill its ISR (KIP-352), and hide one that is missing, for as long as the move takes.

        Args:
            row: the partition afterwards.
            times: of its cluster.
            missing: brokers that left because of this incident.
        """
        key = (row.topic_id, row.partition)
        self.skip_unobserved(row.unobserved)
        self._skip_gap(row)
        before, harmed = self.held.get(key, HEALTHY), len(self.harmed_by)
        back = row.isr if row.leader != NO_LEADER else ()
        now = still_missing(before.missing, tuple(missing), row.replicas, back)
        states = (row.is_under_replicated, row.is_under_min_isr, row.is_offline)
        if row.is_deleted or not now or not (True in states or row.is_moving):
            states = HEALTHY.states
            self._set_held(key, None)
        else:
            self._set_held(key, degraded(now, states, row.needs_all))
            if row.is_under_min_isr:
                self.refused.add(row.topic_id)
            if row.is_minimum_unknown:
                self.unknown.add(row.topic_id)
            if row.is_offline:
                self.leaderless.add(row.topic_id)
            if True in states[1:] and now.issuperset(set(row.replicas).difference(back)):
                self.harmed_by |= (
                    now  # no other broker is missing: writes are refused because of it, whatever came before
                )
        if states != before.states:
            for tally, was, is_now in zip(self.tallies, before.states, states, strict=True):
                tally.move(is_now - was, row.time)
        if self.episode is not None and not self.held:
            self._end_episode(row.time, times)
        return self.held.get(key, HEALTHY) != before or len(self.harmed_by) > harmed

    def _set_held(self, key: TopicPartition, after: DegradedPartition | None) -> None:
        """Set how a partition is degraded; None: it is not."""
        before = self.held.get(key)
        if after is before:
            return
        if before is not None:
            self.alike[before] -= 1
            if not self.alike[before]:
                del self.alike[before]
        if after is None:
            del self.held[key]
        else:
            self.held[key] = after
            self.alike[after] += 1

    def skip_unobserved(self, total: int) -> None:
        """Leave out time without observation of the cluster; ``total`` microseconds of it so far."""
        gap = 0 if self.unobserved is None else max(0, total - self.unobserved)
        self.unobserved = max(total, self.unobserved or 0)
        for tally in self.tallies:
            tally.skip(gap)

    def _skip_gap(self, row: ChangeRow) -> None:
        """Count no time that a log has lost; all partitions that changed within it are reported at one moment."""
        if row.gap > 0 and row.time > self.skipped_at:
            self.skipped_at = row.time
            for tally in self.tallies:
                tally.skip(row.gap)

    def has_moved(self, row: ChangeRow) -> bool:
        """Note that a partition is not being reassigned any more; return whether it was."""
        key, is_over = (row.topic_id, row.partition), row.is_deleted or not row.is_moving
        was_moving = is_over and key in self.moving
        self.moving -= {key} if was_moving else set()
        return was_moving

    def add_lag_report(self, row: ChangeRow, *, follows_others: bool) -> bool:
        """Record that a leader expelled followers; return whether the report is the first of its kind."""
        if self.episode is None:
            self.episode = LagEpisode(began=row.time, seen=row.time, follows_others=follows_others)
        is_seen = row.cause == Cause.LEADER_STALL and row.evidence == Evidence.INFERRED
        is_new = is_seen and row.leader not in self.episode.seen_stalled
        self.episode.seen_stalled |= {row.leader} if is_seen else set()
        is_shrunk = (row.topic_id, row.partition) in self.held
        return self.episode.add_report(row.leader, row.left, row.isr, row.time, is_shrunk=is_shrunk) or is_new

    def release(self) -> None:
        """Forget the degraded partitions: another incident has taken them over."""
        self.held, self.alike, self.moving, self.episode = {}, Counter(), set(), None
        for tally in self.tallies:
            tally.now = 0

    def pass_time(self, moment: int, times: ConfiguredTimes, held: frozenset[int] = frozenset()) -> bool:
        """Advance to a moment; return whether that alone may change the class.

        Brokers that were stopped may be overdue (``absences.overdue``), but not while work is announced (``held``).
        """
        missing = self.missing if self.downs or self.announced else frozenset()
        late = overdue(self.downs, moment, times) & missing - held
        is_new = not late <= self.overdue
        for down in self.downs if self.innocent else ():
            is_away = down.by_stall and down.back_at is None and down.broker not in held
            if is_away and moment - down.at > times.broker_session:
                self.take_for_lost(down.broker, down.at + times.broker_session)
                is_new = True
        self.overdue |= late
        is_new |= self._lags_on((self.announced & missing) - held)
        return is_new or (self.episode is not None and self.episode.pass_time(moment, times))

    def _lags_on(self, brokers: set[int]) -> bool:
        """Take brokers for slow that did not go down, and lag on though their announced work is over."""
        slow = brokers - {down.broker for down in self.downs}
        self.announced -= slow
        self.planned -= slow
        if slow and self.base is Family.PLANNED:
            self.base = Family.LAG
        return bool(slow)

    def _end_episode(self, moment: int, times: ConfiguredTimes) -> None:
        episode, self.episode = self.episode, None
        if episode is None:
            return
        episode.seen = max(episode.seen, moment)
        verdict = episode.verdict(times)
        if verdict is IncidentClass.NETWORK_SPLIT:
            self.cut = episode.cut_off()
        self.stalled = tuple(sorted({*self.stalled, *episode.stalled(times)}))
        self.verdicts[verdict] += max(1, episode.seen - episode.began)

    def record_down(self, broker: int, row: ChangeRow, *, planned: bool) -> None:
        """Record that a broker is down or fenced."""
        if self.down_now(broker) is None:
            self.downs.append(BrokerAbsence(broker, row.time, planned))
            if not planned:
                self.lost_at = row.time
        if planned:
            self.planned.add(broker)
        elif not any(down.broker == broker and down.planned and down.back_at is None for down in self.downs):
            self.lost.add(broker)

    def record_stall(self, brokers: Iterable[int], row: ChangeRow, silent: tuple[int, int]) -> None:
        """Record that the controller fenced brokers because it stood still itself."""
        self.silence = max(self.silence, silent[1] - silent[0])
        for broker in brokers:
            if self.down_now(broker) is None:
                self.downs.append(BrokerAbsence(broker, row.time, planned=False, by_stall=True))
                self.innocent.add(broker)
                self.rejoined.discard(broker)

    def take_for_lost(self, broker: int, moment: int) -> None:
        """Take a broker for lost that a controller's stall does not explain: it stays away, or is another process."""
        self.innocent.discard(broker)
        self.lost.add(broker)
        self.lost_at = max(self.lost_at, moment)
        for down in self.downs:
            down.by_stall &= down.broker != broker

    def take_for_announced(self, broker: int) -> None:
        """Take a broker that a controller's stall does not explain for one that work is done on, as was announced."""
        self.innocent.discard(broker)
        for down in self.downs:
            down.by_stall &= down.broker != broker
        self.take_for_planned(broker)

    def overrun(self, broker: int, moment: int, reasons: set[str]) -> None:
        """Record that announced work on a broker is over, and it is not back; of others' work nothing is said then."""
        self.work = reasons | (set() if reasons and not (self.overdue or self.is_unsafe) else self.work)
        self.overdue, self.overran_at = self.overdue | {broker}, moment

    def take_for_planned(self, broker: int) -> None:
        """Take a broker that seems lost now for one that was stopped cleanly; it may have been lost before."""
        self.planned.add(broker)
        for down in self.downs:
            down.planned |= down.broker == broker and down.back_at is None
        if all(down.planned for down in self.downs if down.broker == broker):
            self.lost.discard(broker)
            self.innocent.discard(broker)
        if self.base in (Family.LOSS, Family.STALL) and not self.lost | self.innocent:
            self.base = Family.PLANNED

    def record_up(self, broker: int, moment: int | None) -> None:
        """Record that a broker is back; None: it has only registered, and is still fenced."""
        if (down := self.down_now(broker)) is not None:
            down.back_at = moment
