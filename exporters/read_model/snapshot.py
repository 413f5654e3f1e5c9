"""Snapshots of the tables at one version, as values that never change: a scrape reads one while the next is made.

Field names of the rows are column names of ``streaming.contracts.tables``; times are UTC microseconds. What did not
change between two snapshots is the same object in both, so a renderer compares by identity.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.read_model.cluster_samples import NO_SAMPLES, ClusterSamples
from streaming.contracts import health
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.sample_tables import ISR_RECONCILIATION, REPLICA_OFFSETS, SAMPLE_TABLES
from streaming.contracts.state import BrokerState, ClusterState, PartitionState, SourceLag, SourceState
from streaming.contracts.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from exporters.read_model.cluster_samples import PartitionOffsets
    from streaming.contracts.conditions import Spell
    from streaming.contracts.sampled_conditions import SampledSpell

SECOND: Final = 1_000_000
RECENT_MICROS: Final = 3600 * SECOND
"""Age up to which a change is recent: longer than the longest window in which a rule looks at partitions."""
# The times of a reconciliation are those of other samples.
_WITH_TIMES: Final = {table.name for table in SAMPLE_TABLES} - {ISR_RECONCILIATION.name}
_SAMPLED: Final = tuple(name for name in ClusterSamples._fields if name in _WITH_TIMES)
NO_TABLE: Final = -1
"""The version of a snapshot that was taken before there was a table."""


class ClusterTotals(NamedTuple):
    """Changes that a cluster ever counted, deleted topics included."""

    isr_shrinks: int = 0
    isr_expands: int = 0
    leader_changes: int = 0
    unclean_elections: int = 0
    missed_changes: int = 0


class SourceProgress(NamedTuple):
    """Progress of one source, and the condition of the query that applies it.

    ``is_counted``: whether its records are counted in ``state``; before the job's first report only times are known.
    """

    channel: str
    state: SourceState
    lag: SourceLag = SourceLag()
    is_counted: bool = True


class EventRow(NamedTuple):
    """One thing that happened, as people read it."""

    event_id: str
    event: str
    event_broker: int | None
    detail: str | None
    cluster_id: str
    cluster: str
    subject: str
    topic: str | None
    partition: int | None
    occurred_not_before: int
    occurred_not_after: int
    source: str
    cause: str | None
    evidence: str | None
    candidates: tuple[str, ...]
    left_isr: tuple[int, ...]
    joined_isr: tuple[int, ...]
    leader_before: int | None
    leader_after: int | None
    isr_before: tuple[int, ...] | None
    isr_after: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class TopicPartitions:
    """The live partitions of one topic, by number."""

    topic_id: str
    topic: str
    partitions: Mapping[int, PartitionState]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionCounts:
    """Partitions of a cluster in each state, and those that each broker leads, hosts and has in sync, counted."""

    states: dict[str, int] = field(default_factory=dict)
    led: dict[int, int] = field(default_factory=dict)
    hosted: dict[int, int] = field(default_factory=dict)
    in_sync: dict[int, int] = field(default_factory=dict)

    def in_state(self, state: str) -> int | None:
        """Count the partitions in a state; None for one that depends on min ISR while min ISR is unknown for all."""
        count = self.states.get(state, 0)
        if state not in health.BY_MINIMUM:
            return count
        with_isr = self.states.get(health.PARTITIONS, 0) - self.states.get(health.DISKLESS, 0)
        return health.known_by_minimum(count, with_isr, self.states.get(health.UNKNOWN_MIN_ISR, 0))


class BrokerAdvice(NamedTuple):
    """Effects of a stop of one broker now, and its suspicion; None is unknown."""

    broker: int
    in_sync_partitions: int | None = None
    would_go_under_min_isr: int | None = None
    would_go_offline: int | None = None
    unknown_min_isr_partitions: int | None = None
    is_safe_to_stop: bool | None = None
    restart_order: int | None = None
    suspect_score: float | None = None
    unavoidable_offline: int | None = None
    unavoidable_under_min_isr: int | None = None
    is_quorum_voter: bool | None = None
    restart_reason: str | None = None


class ClusterTimes(NamedTuple):
    """Seconds of all partitions that a cluster ever had, counted up to a moment; None is unknown."""

    as_of_version: int
    primary_watermark: int | None = None
    offline_seconds: float | None = None
    under_replicated_seconds: float | None = None
    under_min_isr_seconds: float | None = None
    unknown_seconds: float | None = None

    def over(self, before: ClusterTimes | None) -> ClusterTimes:
        """Follow earlier times: no number goes back."""
        if before is None:
            return self
        pairs = zip(self, before, strict=True)
        return ClusterTimes._make(max((one for one in pair if one is not None), default=None) for pair in pairs)


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """The advice about every broker of a cluster.

    Attributes:
        brokers: by number.
        as_of_version: the version of ``partition_changes`` it is true of.
        until: the newest time of the primary source that it covers; None while that is unknown.
    """

    brokers: Mapping[int, BrokerAdvice] = field(default_factory=dict)
    as_of_version: int = -1
    until: int | None = None


def is_recovered(row: Mapping[str, Any]) -> bool:
    """Return whether nothing of an open incident remains to be fixed; it may still continue."""
    return row["closed_at"] is None and row["recovered_at"] is not None


@dataclass(frozen=True, slots=True, eq=False)
class ClusterIncidents:
    """The incidents of one cluster.

    Attributes:
        open: rows of the table, times in microseconds, newest first.
        over: how many there were of each class that can change no more, those that became part of another left out.
        parts: the ids of those that were merged into each open one (``incident_ids.ID_COLUMNS``), by its id.
        names: under which it had incidents.
        others_names: under which other clusters had incidents.
    """

    open: tuple[dict[str, Any], ...] = ()
    over: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    others_names: frozenset[str] = frozenset()

    def open_by_class(self) -> Mapping[str, int]:
        """Count the open ones."""
        return Counter(row["incident_class"] for row in self.open)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClusterSnapshot:
    """Everything known of one cluster.

    Attributes:
        cluster: its row.
        topics: by topic id; only those with live partitions.
        unsettled: of topic id and number, those that are offline, under-replicated, under min ISR or being reassigned.
        recent: the same, those that changed within ``RECENT_MICROS`` before the watermark; the newest change last.
        tombstones: deleted partitions that still count in the totals, by topic id and number.
        brokers: by number, those that are gone included.
        totals: counted since the beginning, deleted topics included.
        departures: broker to cause to how often it left an ISR; None where that cannot be known any more.
        counts: of the live partitions.
        tally: what the counts and totals are made from, for the next snapshot.
        sources: by channel and name.
        offsets: by topic id.
        offsets_at: when the newest of them was asked.
        samples: the newest of everything else.
        advice: about its brokers; None before the job reported any.
        times: of its partitions; None before the job reported any.
        incidents: None while there is no table of them.
        conditions: spells that last or ended lately; while their table cannot be read those that it had.
        conditions_until: up to when they could be read, None while they can be.
        sampled_conditions: spells that last of what samples show; while their table cannot be read those that did.
        watermark_read_at: when its newest watermark was first read, by this machine's clock.
        isr_meters: broker to the ISR shrinks and expands that it made as leader, since this process began to read.
    """

    cluster: ClusterState
    topics: Mapping[str, TopicPartitions] = field(default_factory=dict)
    unsettled: Mapping[tuple[str, int], PartitionState] = field(default_factory=dict)
    recent: dict[tuple[str, int], PartitionState] = field(default_factory=dict)
    tombstones: Mapping[tuple[str, int], PartitionState] = field(default_factory=dict)
    brokers: Mapping[int, BrokerState] = field(default_factory=dict)
    totals: ClusterTotals = field(default_factory=ClusterTotals)
    departures: Mapping[int, Mapping[str, int]] | None = field(default_factory=dict)
    counts: PartitionCounts = field(default_factory=PartitionCounts)
    tally: Tally = field(default_factory=Tally)
    sources: Mapping[tuple[str, str], SourceProgress] = field(default_factory=dict)
    offsets: Mapping[str, PartitionOffsets] = field(default_factory=dict)
    offsets_at: int | None = None
    samples: ClusterSamples = NO_SAMPLES
    advice: Advice | None = None
    times: ClusterTimes | None = None
    incidents: ClusterIncidents | None = None
    conditions: tuple[Spell, ...] = ()
    conditions_until: int | None = None
    sampled_conditions: tuple[SampledSpell, ...] = ()
    watermark_read_at: int | None = None
    isr_meters: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The label that people gave it."""
        return self.cluster.cluster

    @property
    def watermark(self) -> int | None:
        """Newest time of the primary source; durations are counted up to here."""
        return self.cluster.primary_watermark

    @property
    def observed_until(self) -> int | None:
        """The watermark by this machine's clock; when it last advanced, if the clock of the cluster is ahead."""
        if self.watermark is None or self.watermark_read_at is None:
            return self.watermark
        return min(self.watermark, self.watermark_read_at)

    @property
    def spells_until(self) -> int | None:
        """Newest time of which the spells say what lasts; None before there is any."""
        until, readable = self.observed_until, self.conditions_until
        return until if until is None or readable is None else min(until, readable)

    def age_seconds(self, now: int) -> float | None:
        """Return the data age of the cluster; None before its primary source reported."""
        until = self.observed_until
        return None if until is None else max(0, now - until) / SECOND

    def is_stale(self, now: int, stale_after_seconds: float) -> bool:
        """Return whether the data is too old to state anything."""
        age = self.age_seconds(now)
        return age is None or age > stale_after_seconds

    def ahead_until(self, now: int) -> int | None:
        """Return up to when a clock that was ahead has dated its data, which look old until then; None: it was not."""
        return self.watermark if self.watermark is not None and self.watermark > now else None

    @property
    def controller(self) -> int | None:
        """The active controller; None while polls are the primary source: none says who it is."""
        return None if self.cluster.primary_source is SourceKind.POLL else self.cluster.controller

    @property
    def is_derived(self) -> bool:
        """True if the job writes what follows from the changes, as far as it has said: else advice is of before."""
        sources = self.sources.values()
        return all(one.lag.is_query_up is not False for one in sources if one.channel == Channel.REPLICATION)

    def isr_removals_of(self, broker: int) -> Mapping[str, int] | None:
        """Return how often a broker left an ISR, by cause; None while unknown."""
        return None if self.departures is None else self.departures.get(broker, {})

    def is_registered(self, broker: BrokerState) -> bool | None:
        """Return whether a broker is registered; None of one without replicas that polls list no more: is it gone?"""
        is_unlisted = self.cluster.primary_source is SourceKind.POLL and broker.is_fenced
        return None if is_unlisted and not self.counts.hosted.get(broker.broker) else broker.is_registered

    def registered_brokers(self) -> int | None:
        """Count the registered brokers; None while none was ever reported."""
        return sum(map(bool, map(self.is_registered, self.brokers.values()))) if self.brokers else None

    def fenced_brokers(self) -> int | None:
        """Count the registered brokers that are fenced; None while that is unknown of one, or none is registered."""
        fenced = [each.is_fenced for each in self.brokers.values() if self.is_registered(each)]
        return None if None in fenced or not fenced else sum(map(bool, fenced))

    @property
    def has_no_data(self) -> bool:
        """True if the primary source has not reported a whole state yet."""
        is_unknown = self.cluster.primary_source is SourceKind.NONE or not self.cluster.has_baseline
        return is_unknown or self.observed_until is None

    def in_state(self, state: str) -> int | None:
        """Count the partitions in a state; None while that is unknown, as before there is a whole state."""
        return None if self.has_no_data else self.counts.in_state(state)

    def known_brokers(self) -> list[int]:
        """Name every broker that registered or holds a replica."""
        return sorted({*self.brokers, *(number for number, count in self.counts.hosted.items() if count)})

    def newest_samples(self) -> Mapping[str, int]:
        """Return when the newest sample of each table was collected; not of tables without any."""
        moments: dict[str, int | None] = {REPLICA_OFFSETS.name: self.offsets_at}
        for name in _SAMPLED:
            moments[name] = max((row.collected_at for row in getattr(self.samples, name) or ()), default=None)
        return {name: at for name, at in moments.items() if at is not None}

    def partitions(self) -> Iterator[PartitionState]:
        """Iterate over the live partitions."""
        for topic in self.topics.values():
            yield from topic.partitions.values()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplicationSnapshot:
    """Everything the tables say.

    Attributes:
        clusters: by cluster id.
        version, read_at: of ``partition_changes``, ``NO_TABLE`` before there is one; and when it was read.
        recent_events: newest last.
        incidents: by cluster id, those without any left out; None while there is no table of them.
        conditions, sampled_conditions: the same of their spells, as far as they were ever read.
        counted_since: when the counters were 0; None before there is a table.
        number: of two snapshots, the one that was made later has the higher one.
    """

    clusters: Mapping[str, ClusterSnapshot] = field(default_factory=dict)
    version: int = NO_TABLE
    read_at: int = 0
    recent_events: tuple[EventRow, ...] = ()
    incidents: Mapping[str, ClusterIncidents] | None = None
    conditions: Mapping[str, tuple[Spell, ...]] = field(default_factory=dict)
    sampled_conditions: Mapping[str, tuple[SampledSpell, ...]] = field(default_factory=dict)
    counted_since: int | None = None
    number: int = field(init=False, default_factory=count().__next__)
