"""KRaft metadata records: what a controller writes to ``__cluster_metadata``.

Field names are those of Kafka's record schemas in snake case (KIP-631; ELR fields KIP-966). A field that a
``PartitionChange`` does not carry is ``None`` ("unchanged"); an empty tuple clears the list.
The metadata-log source decodes these from bytes, the model's controller produces them, and both
feed the same cluster image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerEpoch, BrokerId, Micros, Offset, TopicId

RECOVERED: Final = 0
RECOVERING: Final = 1

# Names of features.
METADATA_VERSION: Final = "metadata.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"

RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4


class EndPoint(NamedTuple):
    """A listener as a node registers and advertises it; ``security_protocol`` is Kafka's number: 1 SSL, 3 SASL_SSL."""

    listener: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker:
    """A broker process registered; it is born fenced.

    ``host`` and ``port`` are of one of its ``end_points``: of the listener that is used, where that is known.
    """

    broker: BrokerId
    broker_epoch: BrokerEpoch
    incarnation_id: str
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[str, ...] = ()
    host: str | None = None
    port: int | None = None
    end_points: tuple[EndPoint, ...] = ()
    newest_metadata_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker:
    """A broker was removed from the cluster by an administrator."""

    broker: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChange:
    """A broker was fenced or unfenced, began its controlled shutdown, or lost log directories.

    ``fenced``: 1 fenced, -1 unfenced, 0 unchanged. ``in_controlled_shutdown``: 1 began, 0 unchanged.
    """

    broker: BrokerId
    broker_epoch: BrokerEpoch
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic was created; its partitions follow in the same batch."""

    topic: str
    topic_id: TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopic:
    """A topic was deleted, and its partitions with it."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The whole state of one partition: at creation, or in a snapshot."""

    topic_id: TopicId
    partition: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    leader: BrokerId
    leader_recovery_state: int = RECOVERED
    leader_epoch: int
    partition_epoch: int
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """One step of one partition. The partition epoch grows by one; the leader epoch iff ``leader`` is set."""

    topic_id: TopicId
    partition: int
    isr: tuple[BrokerId, ...] | None = None
    leader: BrokerId | None = None
    replicas: tuple[BrokerId, ...] | None = None
    removing_replicas: tuple[BrokerId, ...] | None = None
    adding_replicas: tuple[BrokerId, ...] | None = None
    leader_recovery_state: int | None = None
    elr: tuple[BrokerId, ...] | None = None
    last_known_elr: tuple[BrokerId, ...] | None = None
    directories: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElr:
    """``min.insync.replicas`` changed: the ELR of this topic, or of all topics (empty name), is cleared."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A dynamic configuration was set, or deleted (``value`` is None).

    ``resource_type`` is 2 for a topic, 4 for a broker; the broker resource "" is the cluster's default.
    """

    resource_type: int
    resource_name: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel:
    """A feature was raised or lowered, for example ``metadata.version``."""

    feature: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterController:
    """A controller process registered; ``newest_metadata_version`` is the highest level that it supports."""

    controller: int
    incarnation_id: str
    newest_metadata_version: int | None = None
    end_points: tuple[EndPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterController:
    """The registration of a controller is deleted (KIP-1312, Kafka 4.4): of one that is no voter any more."""

    controller: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """Control record: a new active controller (raft leader) at a new epoch."""

    controller: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOp:
    """The heartbeat of an idle metadata log, each 500 ms by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMarker:
    """Begin (23), end (24) or abort (25) of a metadata transaction (KIP-868)."""

    marker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRecord:
    """A record that says nothing about replication, or is secret (credentials, tokens, ACLs, quotas)."""

    api_key: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecodableRecord:
    """A record of an unknown type or version, or corrupt: kept as bytes with the reason, never fatal.

    ``hides_state``: it may have changed a topic, partition, broker or configuration, so the state after it is unknown.
    """

    reason: str
    value: bytes
    hides_state: bool = True


MetadataRecord = (
    RegisterBroker
    | UnregisterBroker
    | BrokerRegistrationChange
    | Topic
    | RemoveTopic
    | Partition
    | PartitionChange
    | ClearElr
    | Config
    | FeatureLevel
    | RegisterController
    | UnregisterController
    | LeaderChange
    | NoOp
    | TransactionMarker
    | SkippedRecord
    | UndecodableRecord
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """Records that a controller appended together: one timestamp, consecutive offsets.

    Attributes:
        base_offset: offset of the first record; record ``i`` has ``base_offset + i``.
        epoch: raft epoch of the controller that wrote it.
        timestamp: when the controller opened the batch (the controller's clock); 0 of a batch that cannot be decoded.
        records: ordered by offset.
    """

    base_offset: Offset
    epoch: int
    timestamp: Micros
    records: tuple[MetadataRecord, ...]
