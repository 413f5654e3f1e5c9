"""What a broker does for clients and for other brokers, request by request (``KafkaApis``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from streaming.model.broker.consumer_reads import ConsumerReads
from streaming.model.broker.epoch_ends import EpochEnds
from streaming.model.broker.metadata_cache import Directory, MetadataCache
from streaming.model.broker.produce import Produce
from streaming.model.broker.producer_ids import ProducerIds
from streaming.model.broker.transaction_markers import TransactionMarkers
from streaming.model.broker.verification import Verification
from streaming.model.coordinators.groups import GroupCoordinator
from streaming.model.coordinators.transactions import TransactionCoordinator
from streaming.model.messages.client_metadata import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.broker.controller_channel import ControllerChannel
    from streaming.model.broker.following import Following
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.broker.leadership import Leadership
    from streaming.model.broker.purgatory import Purgatory
    from streaming.model.constants import Constants
    from streaming.model.messages.outbox import Outbox
    from streaming.model.network_client import NetworkClient
    from streaming.model.registrations import TopicRegistration
    from streaming.model.storage.disk import Disk


class Parts(Protocol):
    """What requests are answered with: the parts of a broker's process."""

    leadership: Leadership
    following: Following
    purgatory: Purgatory
    network: NetworkClient
    channel: ControllerChannel
    disk: Disk
    outbox: Outbox


class Coordinator(Protocol):
    """Whatever is coordinated by the leader of an internal topic's partition."""

    def elected(self, now: int, partition: LeaderPartition, topic: TopicRegistration) -> None:
        """This broker leads a partition of the topic, or still leads it."""

    def resigned(self, key: TopicPartition) -> None:
        """This broker does not lead a partition, whichever, or no more."""


class Apis:
    """The parts that answer.

    Attributes:
        handlers: by type of message.
        requests: those types that others send first.
        coordinators: by internal topic; told who leads its partitions.
    """

    def __init__(self, parts: Parts, directory: Directory, constants: Constants) -> None:
        leadership, network, outbox = parts.leadership, parts.network, parts.outbox
        self.metadata_cache = MetadataCache(leadership, parts.following, parts.disk, directory, outbox)
        self.verification = Verification(leadership, self.metadata_cache, constants, network)
        self.produce = Produce(leadership, self.verification, parts.purgatory, constants, outbox)
        self.producer_ids = ProducerIds(network, parts.channel)
        self.transactions = TransactionCoordinator(
            self.produce, self.producer_ids, self.metadata_cache, constants, network
        )
        self.groups = GroupCoordinator(self.produce, self.metadata_cache, constants, outbox)
        self.coordinators: dict[str, Coordinator] = {
            TRANSACTION_STATE: self.transactions,
            CONSUMER_OFFSETS: self.groups,
        }
        self.handlers: dict[type, Callable[[int, Any], None]] = {}
        for part in (
            self.metadata_cache,
            self.verification,
            self.produce,
            self.producer_ids,
            self.transactions,
            self.groups,
            EpochEnds(leadership, constants.switches, outbox),
            ConsumerReads(leadership, parts.following, parts.purgatory, constants, outbox),
            TransactionMarkers(self.produce, constants, outbox),
        ):
            self.handlers |= part.handlers
        # The rest are answers to this broker's own requests, and timers.
        self.requests = frozenset(kind for kind in self.handlers if kind.__name__.endswith("Request"))

    def elected(self, now: int, partition: LeaderPartition, topic: TopicRegistration) -> None:
        """This broker leads a partition; if a coordinator keeps its state there, it is told."""
        if topic.topic in self.coordinators:
            self.coordinators[topic.topic].elected(now, partition, topic)

    def resigned(self, key: TopicPartition) -> None:
        """This broker does not lead a partition, or no more."""
        for coordinator in self.coordinators.values():
            coordinator.resigned(key)
