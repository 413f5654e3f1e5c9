"""What the ZooKeeper controller pushes to brokers (apis 4, 5, 6), and controlled shutdown (api 7). Values only.

Each push carries the controller's epoch: a broker that has heard of a newer controller ignores it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerEpoch, BrokerId, TopicPartition
    from streaming.model.messages.membership import MetadataPartition
    from streaming.model.registrations import BrokerRegistration


class LeaderAndIsr(NamedTuple):
    """Who leads these partitions, with which ISR. ``full``: these are all that the broker hosts (KIP-516)."""

    controller_epoch: int
    partitions: tuple[MetadataPartition, ...]
    full: bool = False


class UpdateMetadata(NamedTuple):
    """Which brokers are alive.

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
    """``remaining``: partitions that it still leads, for nobody else may; None if the other is not the controller."""

    remaining: int | None
