"""What travels between nodes, in the words of Kafka's protocol. Values only.

Every node has an address: a broker its id, the active controller ``CONTROLLER``.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import BrokerEpoch, BrokerId, TopicPartition

if TYPE_CHECKING:
    from streaming.contracts.events import Cause
    from streaming.model.partition import BrokerRegistration, PartitionRegistration, TopicRegistration

CONTROLLER: Final = BrokerId(-100)
NO_BROKER_EPOCH: Final = BrokerEpoch(-1)


class Error(Enum):
    """Kafka's error codes, those that can occur here."""

    NONE = auto()
    NOT_LEADER_OR_FOLLOWER = auto()
    UNKNOWN_LEADER_EPOCH = auto()
    FENCED_LEADER_EPOCH = auto()
    STALE_BROKER_EPOCH = auto()
    UNKNOWN_TOPIC_ID = auto()
    NOT_CONTROLLER = auto()
    INVALID_REQUEST = auto()
    INVALID_UPDATE_VERSION = auto()
    INELIGIBLE_REPLICA = auto()
    DUPLICATE_BROKER_REGISTRATION = auto()


class FetchPartition(NamedTuple):
    """One partition of a fetch: where the follower is, in which epochs."""

    topic_partition: TopicPartition
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


class FetchRequest(NamedTuple):
    """A follower's fetch session (KIP-227): only what changed since its last request, unless ``full``."""

    request_id: int
    follower: BrokerId
    broker_epoch: int
    partitions: tuple[FetchPartition, ...]
    forgotten: tuple[TopicPartition, ...]
    full: bool


class FetchedPartition(NamedTuple):
    """One partition of an answer: records ``[fetch_offset, end_offset)``, an error, or where the logs part."""

    topic_partition: TopicPartition
    leader_epoch: int
    error: Error = Error.NONE
    fetch_offset: int = 0
    end_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    high_watermark: int = 0
    diverging: tuple[int, int] | None = None


class FetchResponse(NamedTuple):
    """A leader's answer; partitions with nothing new are left out."""

    request_id: int
    leader: BrokerId
    partitions: tuple[FetchedPartition, ...]


class AlterPartitionItem(NamedTuple):
    """A proposed ISR. ``isr`` carries each member's broker epoch, -1 for "any" (KIP-903).

    ``cause`` is a ghost: the leader's true reason, which the protocol does not carry.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]
    cause: Cause


class AlterPartitionRequest(NamedTuple):
    """Every proposal that a leader has ready; it keeps one such request in flight (KIP-497)."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    partitions: tuple[AlterPartitionItem, ...]


class AlteredPartition(NamedTuple):
    """The controller's verdict on one proposal, and its own view."""

    topic_partition: TopicPartition
    error: Error
    registration: PartitionRegistration | None = None


class AlterPartitionResponse(NamedTuple):
    """The verdicts; ``error`` is set when the whole request was refused."""

    error: Error
    partitions: tuple[AlteredPartition, ...] = ()


class BrokerRegistrationRequest(NamedTuple):
    """A new process asks to be part of the cluster.

    ``previous_broker_epoch`` comes from the clean-shutdown file; -1 after a crash.
    """

    broker: BrokerId
    incarnation_id: str
    previous_broker_epoch: BrokerEpoch


class BrokerRegistrationResponse(NamedTuple):
    """The epoch of this uptime."""

    error: Error
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH


class BrokerHeartbeatRequest(NamedTuple):
    """A broker is alive, has metadata up to an offset, and wants something."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    metadata_offset: int
    want_fence: bool
    want_shut_down: bool


class BrokerHeartbeatResponse(NamedTuple):
    """What the controller made of it."""

    error: Error
    is_fenced: bool = True
    should_shut_down: bool = False


class MetadataRequest(NamedTuple):
    """A new process asks for the metadata log from its newest snapshot on."""

    broker: BrokerId


class MetadataPartition(NamedTuple):
    """One partition's newest registration; None once its topic is deleted."""

    topic_partition: TopicPartition
    topic: TopicRegistration
    registration: PartitionRegistration | None


class MetadataDelta(NamedTuple):
    """A stretch of the metadata log, as the states it leads to. ``snapshot``: there is nothing beyond these."""

    metadata_offset: int
    partitions: tuple[MetadataPartition, ...]
    brokers: tuple[tuple[BrokerId, BrokerRegistration], ...]
    snapshot: bool = False


class Disconnected(NamedTuple):
    """The connection to a node broke: its process ended."""

    peer: BrokerId


Message = (
    FetchRequest
    | FetchResponse
    | AlterPartitionRequest
    | AlterPartitionResponse
    | BrokerRegistrationRequest
    | BrokerRegistrationResponse
    | BrokerHeartbeatRequest
    | BrokerHeartbeatResponse
    | MetadataRequest
    | MetadataDelta
    | Disconnected
)


class StartUp(NamedTuple):
    """Timer: a process has loaded its logs."""


class IsrExpiration(NamedTuple):
    """Timer: look for followers that lag."""


class HeartbeatDue(NamedTuple):
    """Timer: tell the controller that this broker is alive."""

    number: int


class RegistrationDue(NamedTuple):
    """Timer: ask for the registration (again)."""


class AlterPartitionDue(NamedTuple):
    """Timer: send the proposals that failed once more."""


class FetchWaitOver(NamedTuple):
    """Timer: a long poll has waited for data long enough."""

    follower: BrokerId
    request_id: int


class FetchDue(NamedTuple):
    """Timer: fetch from this leader again after its connection broke."""

    leader: BrokerId


class PartitionFetchDue(NamedTuple):
    """Timer: fetch this partition again after an error."""

    topic_partition: TopicPartition
    leader: BrokerId
    leader_epoch: int


Timer = (
    StartUp
    | IsrExpiration
    | HeartbeatDue
    | RegistrationDue
    | AlterPartitionDue
    | FetchWaitOver
    | FetchDue
    | PartitionFetchDue
)


class Outbox:
    """What a node wants done: messages to send and timers to set. The loop empties it after every input."""

    __slots__ = ("messages", "timers")

    def __init__(self) -> None:
        self.messages: list[tuple[BrokerId, Message]] = []
        self.timers: list[tuple[int, Timer]] = []

    def send(self, receiver: BrokerId, message: Message) -> None:
        """Hand a message to the network."""
        self.messages.append((receiver, message))

    def after(self, delay_ms: int, timer: Timer) -> None:
        """Ask to be woken with ``timer``."""
        self.timers.append((delay_ms, timer))
