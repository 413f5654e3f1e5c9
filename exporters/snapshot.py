"""What the tables say at one version, as values that never change: a scrape reads one while the next is made.

Field names of the rows are column names of ``streaming.contracts.tables``; times are UTC microseconds. What did not
change between two snapshots is the same object in both, so a renderer compares by identity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporters.advice import Advice, ClusterTimes
    from exporters.incidents import Incidents

SECOND: Final = 1_000_000
NO_TABLE: Final = -1
"""The version of a snapshot that was taken before there was a table."""


class Partition(NamedTuple):
    """One partition now."""

    topic_id: str
    topic: str
    partition: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    min_isr_configured: int | None = None
    min_isr_effective: int | None = None
    is_offline: bool = False
    is_under_replicated: bool = False
    is_under_min_isr: bool | None = None
    is_at_min_isr: bool | None = None
    is_off_preferred_leader: bool = False
    offline_since: int | None = None
    under_replicated_since: int | None = None
    under_min_isr_since: int | None = None
    offline_seconds: float = 0.0
    under_replicated_seconds: float = 0.0
    under_min_isr_seconds: float = 0.0
    unknown_seconds: float = 0.0
    isr_shrinks: int = 0
    isr_expands: int = 0
    leader_changes: int = 0
    unclean_elections: int = 0
    missed_changes: int = 0
    is_deleted: bool = False
    last_cause: str | None = None
    last_evidence: str | None = None
    changed_at: int | None = None
    change_number: int = 0


class Broker(NamedTuple):
    """One broker now; None is unknown."""

    broker: int
    broker_epoch: int | None = None
    is_registered: bool = True
    is_fenced: bool | None = None
    is_shutting_down: bool | None = None
    rack: str | None = None
    host: str | None = None
    port: int | None = None


class Cluster(NamedTuple):
    """One cluster now."""

    cluster_id: str
    cluster: str
    authority: str | None = None
    controller: int | None = None
    controller_epoch: int | None = None
    controller_changes: int | None = None
    authority_watermark: int | None = None


class Totals(NamedTuple):
    """Running totals of a cluster; they outlive topics."""

    isr_shrinks: int = 0
    isr_expands: int = 0
    leader_changes: int = 0
    unclean_elections: int = 0
    missed_changes: int = 0


class SourceProgress(NamedTuple):
    """How far one source has been applied, and how the query is that applies it; None is unknown."""

    channel: str
    source: str
    authority: str | None = None
    position: int | None = None
    observed_until: int | None = None
    collected_at: int | None = None
    duplicates: int | None = None
    quarantined: int | None = None
    bus_end: int | None = None
    behind_bytes: int | None = None
    is_query_up: bool | None = None
    restarts: int | None = None
    last_error: str | None = None
    reported_at: int | None = None

    def over(self, known: SourceProgress) -> SourceProgress:
        """Take over from what was known before whatever this does not tell; an error that is over is told as none."""
        if self.reported_at is not None:
            return self
        told = (was if value is None else value for value, was in zip(self, known, strict=True))
        return SourceProgress._make(told)


class ReplicaOffsets(NamedTuple):
    """Log positions of one replica; None was not asked."""

    broker: int
    log_start_offset: int | None
    high_watermark: int | None


class BrokerMetric(NamedTuple):
    """The newest sample of a broker's own metric."""

    broker: int
    metric: str
    metric_value: float
    collected_at: int


class Event(NamedTuple):
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


PartitionOffsets = dict[int, tuple[ReplicaOffsets, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Topic:
    """The live partitions of one topic, by number."""

    topic_id: str
    topic: str
    partitions: Mapping[int, Partition]


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """How many partitions of a cluster are in each state, and how many each broker leads, hosts and has in sync."""

    states: Mapping[str, int] = field(default_factory=dict)
    led: Mapping[int, int] = field(default_factory=dict)
    hosted: Mapping[int, int] = field(default_factory=dict)
    in_sync: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClusterSnapshot:
    """Everything known of one cluster.

    Attributes:
        cluster: its row.
        topics: by topic id; only those with live partitions.
        brokers: by number, those that are gone included.
        totals: counted since the beginning, deleted topics included.
        departures: broker to cause to how often it left an ISR.
        tally: counts of the live partitions.
        sources: by channel and name.
        offsets: by topic id.
        offsets_at: when the newest of them was asked.
        broker_metrics: newest samples.
        advice: about its brokers; None before the job told any.
        times: of its partitions; None before the job told any.
        incidents: None while there is no table of them.
    """

    cluster: Cluster
    topics: Mapping[str, Topic] = field(default_factory=dict)
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    departures: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    sources: Mapping[tuple[str, str], SourceProgress] = field(default_factory=dict)
    offsets: Mapping[str, PartitionOffsets] = field(default_factory=dict)
    offsets_at: int | None = None
    broker_metrics: tuple[BrokerMetric, ...] = ()
    advice: Advice | None = None
    times: ClusterTimes | None = None
    incidents: Incidents | None = None

    @property
    def name(self) -> str:
        """The label that people gave it."""
        return self.cluster.cluster

    @property
    def watermark(self) -> int | None:
        """Newest moment that the authority has told; durations are told up to here."""
        return self.cluster.authority_watermark

    def age_seconds(self, now: int) -> float | None:
        """Tell how old our sight of the cluster is; None before its authority spoke."""
        return None if self.watermark is None else max(0, now - self.watermark) / SECOND

    def is_stale(self, now: int, stale_after_seconds: float) -> bool:
        """Tell whether our sight is too old to state anything."""
        age = self.age_seconds(now)
        return age is None or age > stale_after_seconds

    def known_brokers(self) -> list[int]:
        """Name every broker that registered or holds a replica."""
        return sorted({*self.brokers, *(number for number, count in self.tally.hosted.items() if count)})

    def partitions(self) -> Iterator[Partition]:
        """Iterate over the live partitions."""
        for topic in self.topics.values():
            yield from topic.partitions.values()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplicationSnapshot:
    """Everything the tables say.

    Attributes:
        clusters: by cluster id.
        version: version of ``partition_changes``, ``NO_TABLE`` before there is one.
        read_at: when it was read.
        recent_events: newest last.
        incidents: by cluster id, those without any left out; None while there is no table of them.
    """

    clusters: Mapping[str, ClusterSnapshot] = field(default_factory=dict)
    version: int = NO_TABLE
    read_at: int = 0
    recent_events: tuple[Event, ...] = ()
    incidents: Mapping[str, Incidents] | None = None

    def by_name(self) -> dict[str, ClusterSnapshot]:
        """Give the clusters by name; of two with one name the one seen last, a rebuilt cluster replaces the old."""
        newest_last = sorted(self.clusters.values(), key=lambda cluster: cluster.watermark or 0)
        return {cluster.name: cluster for cluster in sorted(newest_last, key=lambda cluster: cluster.name)}
