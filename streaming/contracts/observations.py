"""Observations of sources. One frozen value an observation, validated at birth.

Every observation carries the envelope fields of :class:`Observation`; ``fields`` gives the plain type of each. Here is
what replication is made of; positions and metrics, which are only sampled, are in ``samples``.

A metadata-log source orders its observations by ``(metadata_offset, metadata_index)``; a poller by the ``sequence``
that the bus gives. :class:`SnapshotBegin` and :class:`SnapshotEnd` bracket snapshots; the end names all that exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from streaming.contracts.columns import Long
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, Offset, TopicId
from streaming.errors import InvalidObservation

# The newest format of a record that this program reads. A record carries the format in which its kind appeared, so a
# program that is too old for one stops there, and not before.
SCHEMA_VERSION: Final = 4
MIN_ISR: Final = "min.insync.replicas"
# A key of topics; "true": its records are in an object store that every broker reads and writes, so no replica can fall
# behind, and its ISR means nothing (KIP-1150). Apache Kafka 4.3 does not know it; Inkless does, and renamed it.
DISKLESS: Final = "diskless.enable"
DISKLESS_KEYS: Final = (DISKLESS, "inkless.enable")
END_OF_TIME: Final = 253_402_300_800_000_000  # year 10000, where dates end


class SourceKind(StrEnum):
    """Kind of the source that orders a cluster's partitions; the others corroborate."""

    METADATA_LOG = "metadata_log"
    POLL = "poll"
    NONE = "none"


class Channel(StrEnum):
    """The ways of the bus. What must keep one order shares a channel."""

    REPLICATION = "replication"
    SAMPLES = "samples"


class SnapshotReason(StrEnum):
    """Why a source sends everything it knows."""

    START = "start"
    PERIODIC = "periodic"
    HISTORY_LOST = "history_lost"


def is_true(value: str | None) -> bool:
    """Read a flag of a configuration as Kafka does."""
    return value is not None and value.strip().lower() == "true"


class ConfigOrigin(StrEnum):
    """Origin of a value: the metadata log (dynamic), or a broker that was asked (effective, with static defaults)."""

    LOG = "log"
    DESCRIBE = "describe"


def require(condition: bool, reason: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Refuse an observation with a reason.

    Raises:
        InvalidObservation: the condition does not hold.
    """
    if not condition:
        raise InvalidObservation(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The envelope that every observation shares.

    Attributes:
        cluster_id: Kafka's cluster id, the key.
        cluster: the name that people gave it, a label.
        source: who saw it, for example ``metadata_log:collector-1``; also its folder on the bus.
        source_kind: the rank of this source for the order of partitions.
        sequence: given by the bus on publishing, contiguous in one source from 1; 0 before.
        occurred_not_before: earliest moment it can have happened.
        occurred_not_after: latest moment; equal to the former where a log gives the time.
        collected_at: when the source saw it.
    """

    kind: ClassVar[str] = ""
    format: ClassVar[int] = 1
    channel: ClassVar[Channel] = Channel.REPLICATION

    cluster_id: ClusterId
    cluster: str
    source: str
    source_kind: SourceKind
    sequence: Long = 0
    occurred_not_before: Micros
    occurred_not_after: Micros
    collected_at: Micros

    def __post_init__(self) -> None:
        """Refuse what cannot be true of any observation."""
        require(bool(self.cluster_id), "cluster_id is empty")
        require(bool(self.source), "source is empty")
        for moment in (self.occurred_not_before, self.occurred_not_after, self.collected_at):
            require(0 <= moment < END_OF_TIME, f"no moment in microseconds: {moment}")
        is_window = self.occurred_not_before <= self.occurred_not_after
        require(is_window, "occurred_not_before is after occurred_not_after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Observation):
    """Sample: the next one of its key replaces it, and it says nothing about the order of changes."""

    channel: ClassVar[Channel] = Channel.SAMPLES


CLUSTER_TIMES: Final = {
    "replica.lag.time.max.ms": "replica_lag_time_max_ms",
    "broker.session.timeout.ms": "broker_session_timeout_ms",
}
"""Configured times of all brokers: Kafka's key to the column of ``cluster_state``."""

EXPIRED_CERTIFICATE: Final = "expired.certificate"
"""No key of Kafka: the listener whose certificate has ended, as the collector sees it; None while there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionObserved(Observation):
    """The state of one partition after a step, or in a snapshot or poll.

    A poll has no partition epoch or metadata position, reassignments only if it ``reports_reassignments``, and eligible
    leader replicas (ELR) only if it ``reports_elr``.
    ``cause`` is what the source can prove about the step; None in full reports. ``because`` is the evidence in words
    of a cause that a poll infers, and says what it cannot know.
    """

    kind: ClassVar[str] = "partition"

    metadata_offset: Offset | None = None
    metadata_index: int = 0
    in_snapshot: bool = False
    topic_id: TopicId
    topic: str
    partition: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    reports_reassignments: bool | None = None
    reports_elr: bool | None = None
    leader: BrokerId
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    leader_recovering: bool = False
    cause: Cause | None = None
    evidence: Evidence | None = None
    candidates: tuple[Cause, ...] = ()
    because: str | None = None

    def __post_init__(self) -> None:
        """Refuse a partition without identity or replicas; odd states are for the protocol checks."""
        Observation.__post_init__(self)
        require(bool(self.topic_id) and bool(self.topic), "topic_id or topic is empty")
        require(self.partition >= 0, f"partition is negative: {self.partition}")
        require(bool(self.replicas), "replicas is empty")
        require(len(set(self.replicas)) == len(self.replicas), "replicas name a broker twice")
        require((self.cause is None) == (self.evidence is None), "cause and evidence come together")


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRevised(Observation):
    """A later record proves a cause that was reported as ambiguous.

    ``revised_offset`` is the metadata offset of the partition's step that it is about, ``broker`` the one that it
    removed.
    """

    kind: ClassVar[str] = "cause_revised"

    metadata_offset: Offset
    metadata_index: int = 0
    topic_id: TopicId
    topic: str
    partition: int
    revised_offset: Offset
    cause: Cause
    evidence: Evidence
    broker: BrokerId

    def __post_init__(self) -> None:
        """Refuse a proof that is not later than what it proves."""
        Observation.__post_init__(self)
        require(self.revised_offset < self.metadata_offset, "revised_offset is not before metadata_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRemoved(Observation):
    """A topic was deleted, and its partitions with it."""

    kind: ClassVar[str] = "topic_removed"

    metadata_offset: Offset | None = None
    topic_id: TopicId
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerObserved(Observation):
    """The state of one broker after a step, or in a snapshot or poll. A poller leaves what it cannot see None.

    ``unseen``: it is unfenced, and has no listener of the name that is polled: nothing else can be asked of it.
    """

    kind: ClassVar[str] = "broker"

    metadata_offset: Offset | None = None
    in_snapshot: bool = False
    broker: BrokerId
    broker_epoch: Long | None = None
    registered: bool = True
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    rack: str | None = None
    log_dirs: tuple[str, ...] | None = None
    host: str | None = None
    port: int | None = None
    unseen: bool | None = None
    newest_metadata_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerObserved(Observation):
    """Leader of the metadata quorum, and its raft epoch; the voters, where the source sees them (DescribeQuorum).

    ``voters`` None: not seen. ``caught_up`` None: it is unknown which of them have what the leader has. ``is_led``, of
    a source that asks brokers: whether one of them named a leader; None: it is unknown, as they may not be asked.
    Without a leader ``controller`` is the last one, or -1. ``registered_controllers``, of the metadata log: those that
    are registered, and in ``registered_levels`` the newest metadata.version that each supports, 0 for unknown.
    ``silent_since``: this controller stood still from then until now, as the times of its records prove.
    """

    kind: ClassVar[str] = "controller"

    metadata_offset: Offset | None = None
    controller: int
    controller_epoch: int
    voters: tuple[int, ...] | None = None
    caught_up: tuple[int, ...] | None = None
    is_led: bool | None = None
    registered_controllers: tuple[int, ...] | None = None
    registered_levels: tuple[int, ...] | None = None
    silent_since: Micros | None = None

    def __post_init__(self) -> None:
        """Refuse a list of controllers that does not match its list of levels."""
        Observation.__post_init__(self)
        has_levels = len(self.registered_controllers or ()) == len(self.registered_levels or ())
        require(has_levels, "registered_controllers and registered_levels differ in length")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigObserved(Observation):
    """A configuration that matters to replication. ``topic`` "" is the cluster's default; ``value`` None unsets.

    ``key`` is ``MIN_ISR``, of a topic ``DISKLESS``, or of the cluster one of ``CLUSTER_TIMES``, or
    ``EXPIRED_CERTIFICATE``. With ``brokers`` it is the minimum in the configuration of each of these, in ``values``
    (same length; -1: unset, or no number). From the metadata log these are all that are set for single brokers.
    """

    kind: ClassVar[str] = "config"

    metadata_offset: Offset | None = None
    topic: str
    key: str
    value: str | None = None
    origin: ConfigOrigin
    brokers: tuple[BrokerId, ...] | None = None
    values: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse a list of brokers that does not match its list of values."""
        Observation.__post_init__(self)
        require(len(self.brokers or ()) == len(self.values or ()), "brokers and values differ in length")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Observation):
    """Nothing changed up to ``occurred_not_after``: the data of the cluster are fresh."""

    kind: ClassVar[str] = "heartbeat"

    metadata_offset: Offset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBegin(Observation):
    """Begin of a full report: up to the end marker of the same id follows everything the source knows.

    ``is_new_log``: the metadata log does not contain what this source had read of it, because it was created again, or
    restored. Offsets and epochs from before say nothing about those from now on.
    """

    kind: ClassVar[str] = "snapshot_begin"

    metadata_offset: Offset | None = None
    snapshot_id: str
    reason: SnapshotReason
    is_new_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEnd(Observation):
    """The snapshot is complete.

    ``topic_ids`` and ``partition_counts`` (same length) name every topic with its number of partitions (they are
    numbered from 0), ``brokers`` every registered broker. What is not named does not exist, but topics may if it
    ``is_partial``: some are not to be described.
    """

    kind: ClassVar[str] = "snapshot_end"

    metadata_offset: Offset | None = None
    snapshot_id: str
    topic_ids: tuple[TopicId, ...]
    partition_counts: tuple[int, ...]
    brokers: tuple[BrokerId, ...]
    is_partial: bool | None = None

    def __post_init__(self) -> None:
        """Refuse a list of topics that does not match its list of counts."""
        Observation.__post_init__(self)
        has_counts = len(self.topic_ids) == len(self.partition_counts)
        require(has_counts, "topic_ids and partition_counts differ in length")


# Planned work on a broker, as it is announced: a lease, which holds until its end unless it is renewed or ended.


# However it is configured, no lease lasts longer: it would hide what goes wrong with the broker for too long.
LONGEST_LEASE: Final = Micros(7 * 86_400_000_000)
# Ends the reason of a lease whose command has ended, and which holds on for a short tail. It is stored with the reason,
# for people to read; a field of its own would be another format, for one line of text.
IN_ITS_TAIL: Final = " (the command has ended)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceObserved(Observation):
    """Planned work on a broker was announced, extended, renewed or ended. Its times are of that moment.

    Attributes:
        broker: the broker that the work may take down.
        lease: identifies the announcement; extending, renewing and ending it repeat this.
        lease_until: when it lapses; not after this observation: it has ended.
        is_renewal: a running command still holds the lease; such an extension is no event.
        why: the reason, for people.
        announced_by: who, for people: user and host.
    """

    kind: ClassVar[str] = "maintenance"
    format: ClassVar[int] = 3

    broker: BrokerId
    lease: str
    lease_until: Micros
    is_renewal: bool = False
    why: str
    announced_by: str = ""

    def __post_init__(self) -> None:
        """Refuse a lease without identity, or one that lasts too long."""
        Observation.__post_init__(self)
        require(bool(self.lease), "lease is empty")
        require(self.lease_until >= 0, f"lease_until is negative: {self.lease_until}")
        require(self.lease_until - self.occurred_not_after <= LONGEST_LEASE, "a lease lasts at most 7 days")

    @property
    def is_end(self) -> bool:
        """True if it ends the lease."""
        return self.lease_until <= self.occurred_not_after
