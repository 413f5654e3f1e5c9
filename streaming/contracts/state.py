"""The state of partitions, brokers, clusters and sources, defined once: fields, meaning, defaults.

The fold computes with these values and the exporter serves them. Columns of the tables, Spark schemas and the reference
are projections of them (``state_columns``): a field that is defined here is written and read, and one that is not
set has the default from here. The order of fields is the order of columns, also within the structs ``before`` and
``after`` of ``partition_changes``; a new field goes to the end of its class, where the job adds it to existing tables
(``streaming.delta.log.definitions``).

NamedTuples, because a million of them are held and built again with every change: they build twenty times as fast as
frozen dataclasses. All times are UTC microseconds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final, NamedTuple

from streaming.contracts.columns import DISKLESS_TOPICS, TOPIC_MIN_ISR, Column, Long, columns_of
from streaming.contracts.identifiers import NO_LEADER, SECOND, BrokerId, ClusterId, Micros, Offset, TopicId
from streaming.contracts.observations import MIN_ISR, ConfigOrigin, SourceKind


class PartitionState(NamedTuple):
    """One partition: what the cluster reports, what follows for its health, and its totals."""

    cluster_id: Annotated[ClusterId, "Kafka's cluster id"]
    cluster: Annotated[str, "display name of the cluster"]
    topic_id: Annotated[TopicId, "topic id, as Kafka's tools print it"]
    topic: Annotated[str, "topic name"]
    partition: Annotated[int, "partition number"]

    replicas: Annotated[tuple[BrokerId, ...], "assigned brokers; the first is the preferred leader"]
    # Invariant: ISR within replicas; leader within ISR, but for the moment of an unclean election (KIP-966).
    isr: Annotated[tuple[BrokerId, ...], "in-sync replicas"]
    # Invariant: ELR and ISR are disjoint, and together never smaller than what was once acknowledged to (KIP-966).
    elr: Annotated[tuple[BrokerId, ...], "eligible leader replicas (KIP-966)"] = ()
    last_known_elr: Annotated[tuple[BrokerId, ...], "last known leader, while no replica is eligible"] = ()
    adding_replicas: Annotated[tuple[BrokerId, ...], "replicas that a reassignment adds"] = ()
    removing_replicas: Annotated[tuple[BrokerId, ...], "replicas that a reassignment removes"] = ()
    leader: Annotated[BrokerId, "leading broker, -1 for none, -2 for one that the source cannot see"] = NO_LEADER
    # Never decreases; grows by one with each election. A poll may not see it.
    leader_epoch: Annotated[int | None, "leader epoch; null where the source cannot see it"] = None
    # Grows by exactly one with each change, so a jump of n says that n - 1 changes were missed (KIP-631).
    partition_epoch: Annotated[int | None, "version of the partition's metadata; null where unseen"] = None
    leader_recovering: Annotated[bool, "the leader was elected uncleanly and has not recovered"] = False
    min_isr_configured: Annotated[int | None, "min.insync.replicas; null while unknown"] = None
    # Invariant: min_isr_effective = min(min_isr_configured, len(replicas)) (KAFKA-15583).
    min_isr_effective: Annotated[int | None, "the same, capped at the replica count"] = None

    is_offline: Annotated[bool, "the partition has no leader"] = False
    is_under_replicated: Annotated[bool, "fewer in-sync replicas than assigned"] = False
    is_under_min_isr: Annotated[bool | None, "acks=all writes are refused; null while unknown"] = None
    is_at_min_isr: Annotated[bool | None, "a replica is missing, one more loss stops writes; null while unknown"] = None
    is_off_preferred_leader: Annotated[bool, "a replica other than the first leads"] = False
    # Invariant: x_since is set exactly while is_x holds; x_seconds grows only when x_since is cleared.
    offline_since: Annotated[Micros | None, "begin of the open episode"] = None
    under_replicated_since: Annotated[Micros | None, "begin of the open episode"] = None
    under_min_isr_since: Annotated[Micros | None, "begin of the open episode"] = None
    offline_seconds: Annotated[float, "total of the closed episodes"] = 0.0
    under_replicated_seconds: Annotated[float, "total of the closed episodes"] = 0.0
    under_min_isr_seconds: Annotated[float, "total of the closed episodes"] = 0.0
    unknown_seconds: Annotated[float, "time during which the partition was not observed"] = 0.0

    isr_shrinks: Annotated[Long, "changes in which a broker left the ISR"] = 0
    isr_expands: Annotated[Long, "changes in which a broker joined the ISR"] = 0
    leader_changes: Annotated[Long, "changes of the leader"] = 0
    unclean_elections: Annotated[Long, "leaders elected from outside ISR and ELR"] = 0
    missed_changes: Annotated[Long, "changes inferred from epoch gaps but never observed"] = 0
    is_deleted: Annotated[bool, "the topic is deleted; the row stays as a tombstone for a day"] = False
    last_cause: Annotated[str | None, "cause of the last ISR or leader change"] = None
    last_evidence: Annotated[str | None, "proven, ambiguous or inferred"] = None
    last_cause_offset: Annotated[Offset | None, "metadata log offset of that change"] = None
    changed_at: Annotated[Micros | None, "when the last change happened, at the latest"] = None
    # The first row of a partition has 0; each accepted change adds one, also across deletion and re-creation by poll.
    change_number: Annotated[Long, "accepted changes of this partition; the baseline is 0"] = 0
    metadata_offset: Annotated[Offset | None, "metadata log offset of the last change"] = None
    metadata_index: Annotated[int, "order within that offset"] = 0
    unobserved_micros: Annotated[Long, "cluster_state.unobserved_micros as of the last change (see there)"] = 0
    # Invariant: such a partition is in no episode, and neither under nor at its min ISR.
    is_diskless: Annotated[bool, "its records are in an object store (KIP-1150): its ISR means nothing"] = False
    # As long as replicas, and in its order. A leader applies the value of its own file (KIP-226).
    min_isr_by_replica: Annotated[
        tuple[int, ...] | None,
        "min_isr_effective if each of its replicas led it, where that differs; -1: unknown; null: they agree",
    ] = None


QUORUM_FRESH: Final = 180_000_000
"""Age up to which an answer about the quorum counts: asked for each half minute, and written down once a minute."""


class BrokerState(NamedTuple):
    """One broker, as far as the source can see it; None is unknown."""

    cluster_id: Annotated[ClusterId, "Kafka's cluster id"]
    cluster: Annotated[str, "display name of the cluster"]
    broker: Annotated[BrokerId, "broker id"]
    # Each registration of a broker has a larger one: the offset of its RegisterBrokerRecord (KIP-631).
    broker_epoch: Annotated[Long | None, "epoch of the broker's registration"] = None
    is_registered: Annotated[bool, "registered with the controller"] = True
    is_fenced: Annotated[bool | None, "may not lead; null while unknown"] = None
    is_shutting_down: Annotated[bool | None, "in controlled shutdown; null while unknown"] = None
    rack: Annotated[str | None, "rack, if it has one"] = None
    host: Annotated[str | None, "host of its first listener"] = None
    port: Annotated[int | None, "port of its first listener"] = None
    log_dirs: Annotated[tuple[str, ...] | None, "online log directories"] = None
    broker_metadata_offset: Annotated[Offset | None, "metadata log offset of its last change"] = None
    # Invariant: these three are set together, while a lease holds (streaming.changes.maintenance).
    maintenance_since: Annotated[Micros | None, "planned work on it was announced to begin then; null for none"] = None
    maintenance_until: Annotated[Micros | None, "and to end then, at the latest"] = None
    maintenance_why: Annotated[str | None, "the reason that was given"] = None
    maintenance_overran_at: Annotated[Micros | None, "planned work ended then and it was not back; null if it is"] = (
        None
    )
    maintenance_leases: Annotated[str | None, "leases that the job needs to continue with, as JSON"] = None
    is_unseen: Annotated[
        bool | None, "true: unfenced, and without a listener of the name that is polled, so nothing else is seen of it"
    ] = None
    newest_metadata_version: Annotated[
        int | None, "newest metadata.version that its registration supports; null while unknown"
    ] = None
    min_isr: Annotated[
        int | None, "its own min.insync.replicas, for topics that leave it to the brokers; null: not reported"
    ] = None
    min_isr_dynamic: Annotated[
        int | None, "min.insync.replicas that is set for it alone, above the cluster's default; null: none, or unknown"
    ] = None


class ClusterState(NamedTuple):
    """One cluster."""

    cluster_id: Annotated[ClusterId, "Kafka's cluster id"]
    cluster: Annotated[str, "display name of the cluster"]
    primary_source: Annotated[SourceKind, "kind of the primary source: metadata_log or poll"] = SourceKind.NONE
    controller: Annotated[int | None, "active controller"] = None
    controller_epoch: Annotated[int | None, "its raft epoch"] = None
    controller_changes: Annotated[Long, "controller fail-overs observed"] = 0
    has_baseline: Annotated[bool, "a first full report is complete"] = False
    # Invariant: primary_watermark <= watermark; neither ever goes back.
    watermark: Annotated[Micros | None, "newest applied time of any source"] = None
    primary_watermark: Annotated[
        Micros | None, "newest applied time of the primary source; durations are counted up to here"
    ] = None
    sight_until: Annotated[Micros | None, "while a full report closes an observation gap: when the gap began"] = None
    tombstones_until: Annotated[Micros | None, "tombstones up to here are dropped, their totals are kept here"] = None
    expired_isr_shrinks: Annotated[Long, "total of the dropped tombstones"] = 0
    expired_isr_expands: Annotated[Long, "total of the dropped tombstones"] = 0
    expired_leader_changes: Annotated[Long, "total of the dropped tombstones"] = 0
    expired_unclean_elections: Annotated[Long, "total of the dropped tombstones"] = 0
    expired_missed_changes: Annotated[Long, "total of the dropped tombstones"] = 0
    expired_offline_seconds: Annotated[float, "total of the dropped tombstones"] = 0.0
    expired_under_replicated_seconds: Annotated[float, "total of the dropped tombstones"] = 0.0
    expired_under_min_isr_seconds: Annotated[float, "total of the dropped tombstones"] = 0.0
    expired_unknown_seconds: Annotated[float, "total of the dropped tombstones"] = 0.0
    # A broker with a vote is a combined node. Only DescribeQuorum reports them.
    quorum_voters: Annotated[tuple[int, ...] | None, "voters of the controller quorum; null while unknown"] = None
    quorum_caught_up: Annotated[tuple[int, ...] | None, "those that have caught up; null while unknown"] = None
    quorum_observed_at: Annotated[Micros | None, "when that was last reported, to the minute; null for never"] = None
    # What it has more than a partition has is unknown time of that partition, and not of its open episodes.
    unobserved_micros: Annotated[Long, "time without observation of any partition, in all, which no log proved"] = 0
    observed_since: Annotated[Micros | None, "end of the last such time; null for none"] = None
    replica_lag_time_max_ms: Annotated[Long | None, "replica.lag.time.max.ms of its brokers; null: not reported"] = None
    broker_session_timeout_ms: Annotated[Long | None, "broker.session.timeout.ms; null: not reported"] = None
    metadata_log_since: Annotated[
        Micros | None, "begin of the metadata log, if it replaced another one: older offsets and epochs mean nothing"
    ] = None
    expired_certificate: Annotated[
        str | None, "a listener whose certificate has ended: a node that restarts does not come back; null: none known"
    ] = None
    is_quorum_led: Annotated[
        bool | None, "whether brokers named a leader of the quorum at quorum_observed_at; null: they may not be asked"
    ] = None
    registered_controllers: Annotated[
        tuple[int, ...] | None, "controllers that are registered, voters or not; null while unknown"
    ] = None
    registered_levels: Annotated[
        tuple[int, ...] | None, "newest metadata.version that each of them supports, in this order; 0: not reported"
    ] = None
    # Invariant: these two are set together.
    controller_silent_since: Annotated[Micros | None, "begin of the last stall of a controller; null for none"] = None
    controller_silent_until: Annotated[Micros | None, "and its end"] = None

    @property
    def observed(self) -> ObservedTime:
        """Up to when, and for how long in all not, the cluster was observed.

        While a full report closes a gap, and is not done, it is unknown of which partitions that time was observed:
        of those whose epoch is the same after as before. What was counted meanwhile might have to be taken back.
        """
        begin, recorded = self.sight_until, self.observed_since
        is_recorded = begin is None or (recorded is not None and begin < recorded)
        return ObservedTime(self.primary_watermark if is_recorded else begin, self.unobserved_micros)

    def has_expired(self, partition: PartitionState) -> bool:
        """Return whether a partition is a tombstone that this cluster has dropped."""
        until, at = self.tombstones_until, partition.changed_at
        return partition.is_deleted and until is not None and at is not None and at <= until

    def not_before(self, other: ClusterState | None) -> ClusterState:
        """Return this state with watermarks that are not before those of another one, which was known already."""
        if other is None:
            return self
        return self._replace(
            watermark=later(self.watermark, other.watermark),
            primary_watermark=later(self.primary_watermark, other.primary_watermark),
        )

    def with_watermark(self, moment: Micros, *, is_primary: bool) -> ClusterState:
        """Move the watermark forward, and that of the primary source if the moment is its own."""
        newest = max(self.watermark or moment, moment)
        primary = max(self.primary_watermark or moment, moment) if is_primary else self.primary_watermark
        if (newest, primary) == (self.watermark, self.primary_watermark):
            return self  # a full report repeats one moment a million times
        return self._replace(watermark=newest, primary_watermark=primary)


def later(one: int | None, other: int | None) -> Micros | None:
    """Return the later of two moments; either may be unknown."""
    return max((Micros(moment) for moment in (one, other) if moment is not None), default=None)


class SourceState(NamedTuple):
    """Progress of one source of one cluster."""

    cluster_id: Annotated[ClusterId, "Kafka's cluster id"]
    cluster: Annotated[str, "display name of the cluster"]
    source: Annotated[str, "name of the source, and its folder on the bus"]
    source_kind: Annotated[SourceKind, "kind of the source"]
    # Invariant: only grows while the log is the same; a record at or below it is skipped when it comes again.
    position: Annotated[Long, "bus position up to which it is applied"] = 0
    sequence: Annotated[Long, "number of its last observation"] = 0
    offset: Annotated[Offset | None, "metadata log offset of its last observation"] = None
    observed_until: Annotated[Micros | None, "newest occurred_not_after: its watermark"] = None
    collected_at: Annotated[Micros | None, "collected_at of its last observation; of samples, the newest"] = None
    duplicates: Annotated[
        Long, "observations dropped as equal, older or not of the primary source, outside of full reports"
    ] = 0
    quarantined: Annotated[Long, "records refused"] = 0
    log_id: Annotated[Long | None, "identity of the log that the position is of; null if it has none"] = None


class SourceLag(NamedTuple):
    """Lag of the job behind a source, and the condition of the query that applies it; None is unknown."""

    bus_end: Annotated[Long | None, "position behind its newest record on the bus"] = None
    behind_bytes: Annotated[Long | None, "bytes of its log that are not applied yet"] = None
    is_query_up: Annotated[bool | None, "whether the query that applies it runs"] = None
    restarts: Annotated[Long | None, "restarts of that query since its job started"] = None
    last_error: Annotated[str | None, "last failure of that query; null if it never failed"] = None
    reported_at: Annotated[Micros | None, "when this row was written; older than a minute: the job does not run"] = None


class ConfigKey(NamedTuple):
    """Key of a value: a topic by name, the origin that reports it, one configuration."""

    cluster_id: ClusterId
    topic: str
    origin: ConfigOrigin
    key: str = MIN_ISR


class ConfigValue(NamedTuple):
    """A configured value (None: unset; a flag is a bool) and the metadata offset that set it."""

    value: int | None
    offset: int | None


def state_columns(state: type[Any], identity: int = 0) -> tuple[Column, ...]:
    """Return the columns of a state but the first ones, which its row has next to it; a whole state may be null."""
    return tuple(replace(column, nullable=True) for column in columns_of(state)[identity:])


PARTITION_STATE: Final = state_columns(PartitionState, identity=5)
BROKER_STATE: Final = state_columns(BrokerState, identity=3)
_OF_CLUSTER: Final = state_columns(ClusterState, identity=2)
# Delta adds a new field of a struct behind all others: here columns that are new since the two between them.
_NEWER: Final = ClusterState._fields.index("metadata_log_since") - 2
CLUSTER_STATE: Final = (*_OF_CLUSTER[:_NEWER], TOPIC_MIN_ISR, DISKLESS_TOPICS, *_OF_CLUSTER[_NEWER:])
SOURCE_STATE: Final = state_columns(SourceState, identity=4)
SOURCE_LAG: Final = state_columns(SourceLag)


# Totals of a partition for as long as it is remembered, and how an open episode adds to them.
#
# Time without observation belongs to no episode: it is unknown. The metadata log proves such a time by an equal
# partition epoch before and after. That of a poller is recorded once per cluster, in ``unobserved_micros``, and each
# partition keeps the value as of its last change: the difference is what its totals lack. It costs nothing per
# partition.


# States that have a ``_since`` while they last and a ``_seconds`` of those that ended.
EPISODES: Final = ("offline", "under_replicated", "under_min_isr")
UNKNOWN: Final = "unknown_seconds"
SECONDS: Final = (*(f"{name}_seconds" for name in EPISODES), UNKNOWN)
COUNTS: Final = ("isr_shrinks", "isr_expands", "leader_changes", "unclean_elections", "missed_changes")
TOTALS: Final = (*COUNTS, *SECONDS)


class ObservedTime(NamedTuple):
    """The clock of durations: time that passes only while a cluster is observed.

    Attributes:
        watermark: newest time that its primary source has reported, None before the first report.
        unobserved: microseconds before that without observation, in all.
    """

    watermark: int | None = None
    unobserved: int = 0

    def lacking(self, partition: Any) -> int:  # noqa: ANN401 - any row with these columns
        """Return the microseconds without observation since the last change of a partition; none of a tombstone."""
        return 0 if partition.is_deleted else max(0, self.unobserved - int(partition.unobserved_micros))

    def seconds_in(self, partition: Any, name: str) -> float:  # noqa: ANN401 - as above
        """Return one of ``SECONDS`` of a partition: an open episode counts up to the watermark, and never past it.

        The partition is a state of the job or a row of the exporter: the columns of ``partition_state`` as attributes.
        """
        closed: float = getattr(partition, name) or 0.0
        if name == UNKNOWN:
            return closed + self.lacking(partition) / SECOND
        since: int | None = getattr(partition, name.removesuffix("_seconds") + "_since")
        if since is None or self.watermark is None:
            return closed
        return closed + max(0, self.watermark - since - self.lacking(partition)) / SECOND
