"""A broker and its controller: registration, heartbeats, metadata (apis 62 and 63, KIP-631). Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.model.storage.disk import NO_BROKER_EPOCH

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerEpoch, BrokerId, TopicPartition
    from streaming.model.constants import Error
    from streaming.model.messages.network import Message
    from streaming.model.messages.registrations import BrokerRegistration, PartitionRegistration, TopicRegistration


class BrokerRegistrationRequest(NamedTuple):
    """A new process asks to be part of the cluster.

    ``previous_broker_epoch`` comes from the clean-shutdown file; -1 after a crash. ``log_dirs``: those that can be
    read; empty from a broker that has a single one.
    """

    broker: BrokerId
    incarnation_id: str
    previous_broker_epoch: BrokerEpoch
    rack: str | None = None
    log_dirs: tuple[str, ...] = ()


class BrokerRegistrationResponse(NamedTuple):
    """The broker epoch: it lasts until this process ends."""

    error: Error
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH


class BrokerHeartbeatRequest(NamedTuple):
    """A broker is alive, has metadata up to an offset, and wants something.

    It also says which of its directories cannot be read, and which get no new replicas.
    """

    broker: BrokerId
    broker_epoch: BrokerEpoch
    metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[str, ...] = ()
    cordoned_log_dirs: tuple[str, ...] = ()


class BrokerHeartbeatResponse(NamedTuple):
    """Answer of the controller to a heartbeat."""

    error: Error
    is_fenced: bool = True
    should_shut_down: bool = False


class AssignReplicasToDirsRequest(NamedTuple):
    """Directories in which a broker has put replicas (api 73, KIP-858). Departs from Kafka: there is no answer."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    placed: tuple[tuple[TopicPartition, str], ...]


class MetadataRequest(NamedTuple):
    """A new process asks for the metadata log from its newest snapshot on."""

    broker: BrokerId


class MetadataPartition(NamedTuple):
    """One partition's newest registration; None once its topic is deleted."""

    topic_partition: TopicPartition
    topic: TopicRegistration
    registration: PartitionRegistration | None


class MetadataDelta(NamedTuple):
    """A stretch of the metadata log, as the states it leads to.

    ``brokers``: None for one that was removed. ``topics``: those with a new configuration. ``snapshot``: there is
    nothing beyond these.
    """

    metadata_offset: int
    partitions: tuple[MetadataPartition, ...]
    brokers: tuple[tuple[BrokerId, BrokerRegistration | None], ...]
    topics: tuple[TopicRegistration, ...] = ()
    snapshot: bool = False


class FromController(NamedTuple):
    """Anything that the active controller tells a broker; the highest epoch is the one to listen to."""

    controller: BrokerId
    epoch: int
    message: Message


class NotController(NamedTuple):
    """Refusal of an inactive controller; ``leader`` leads ``epoch``, as far as it knows."""

    controller: BrokerId
    leader: BrokerId | None
    epoch: int


# Messages of the ZooKeeper controller to brokers (apis 4, 5, 6), and controlled shutdown (api 7). Values only.
#
# Each push carries the controller's epoch: a broker that has heard of a newer controller ignores it.


class LeaderAndIsr(NamedTuple):
    """Leaders and ISRs of these partitions. ``full``: these are all that the broker hosts (KIP-516)."""

    controller_epoch: int
    partitions: tuple[MetadataPartition, ...]
    full: bool = False


class UpdateMetadata(NamedTuple):
    """Brokers that are alive.

    Departs from Kafka: where partitions are led, which only clients want to know of it, is left out.
    """

    controller_epoch: int
    brokers: tuple[tuple[BrokerId, BrokerRegistration], ...]


class StopReplica(NamedTuple):
    """Stop replicating these partitions; ``delete`` their logs, too."""

    controller_epoch: int
    partitions: tuple[TopicPartition, ...]
    delete: bool


class ControlledShutdownRequest(NamedTuple):
    """A broker asks the controller to take everything off it (KIP-49)."""

    broker: BrokerId
    broker_epoch: BrokerEpoch


class ControlledShutdownResponse(NamedTuple):
    """``remaining``: partitions that it still leads, for no other replica may; None: the other is no controller."""

    remaining: int | None
