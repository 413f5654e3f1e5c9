"""The controller's state as its log tells it (``replay`` of ``ReplicationControlManager``, ``ClusterControlManager``).

Replay believes every record: whether the controller had reason to write it is asked elsewhere. Only a record that
cannot be applied at all is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import singledispatchmethod
from itertools import chain, combinations
from typing import Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, Micros, TopicId, TopicPartition
from streaming.contracts.records import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    BrokerRegistrationChange,
    ClearElr,
    Config,
    FeatureLevel,
    LeaderChange,
    MetadataRecord,
    Partition,
    PartitionChange,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from streaming.model.constants import Constants
from streaming.model.controller.metadata_writer import MetadataWriter
from streaming.model.controller.topics import MIN_ISR
from streaming.model.messages.network import Outbox
from streaming.model.messages.registrations import BrokerRegistration, PartitionRegistration, TopicRegistration

UNCLEAN: Final = "unclean.leader.election.enable"
_ELR: Final = "eligible.leader.replicas.version"
_METADATA_VERSION: Final = "metadata.version"
_3_6_IV0: Final = 12
_NO_CAP: Final = 1 << 15


class Settings(NamedTuple):
    """What the controller's rules need of a topic's configuration: the effective minimum, and a permission."""

    min_isr: int
    unclean: bool


class Refused(Exception):
    """A record that contradicts the state."""


class Replay:
    """State of a controller, and what its next steps would be.

    Args:
        min_isr: the controllers' static ``min.insync.replicas``; None: not known, any is possible.
        unclean: their static ``unclean.leader.election.enable``; None: not known.
    """

    def __init__(self, *, min_isr: int | None, unclean: bool | None) -> None:
        self.writer = MetadataWriter(Constants(eligible_leader_replicas=False), origin=Micros(0), outbox=Outbox())
        self.registry = self.writer.registry
        self.controller_epoch = -1
        self._static: dict[str, str | None] = {
            MIN_ISR: None if min_isr is None else str(min_isr),
            UNCLEAN: None if unclean is None else str(unclean).lower(),
        }
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._ids: dict[str, TopicId] = {}
        self._voided: set[tuple[BrokerId, TopicId]] = set()
        self._degraded: set[BrokerId] = set()

    def was_voided(self, broker: BrokerId, topic_id: TopicId) -> bool:
        """Return whether a new minimum ever took a broker's eligibility for a topic (see ``Quirk.REPEATED_CHANGE``)."""
        return (broker, topic_id) in self._voided

    def offline(self, partition: PartitionRegistration) -> Iterator[tuple[BrokerId, ...]]:
        """Give which replicas may lie in directories that their brokers lost: no record tells where a replica lies."""
        suspects = [broker for broker in partition.replicas if broker in self._degraded]
        return chain.from_iterable(combinations(suspects, count) for count in range(len(suspects) + 1))

    def topic_called(self, name: str) -> TopicRegistration | None:
        return self.registry.topics.get(self._ids[name]) if name in self._ids else None

    def subject_of(self, record: MetadataRecord) -> str:
        """Name what a record is about; a topic that does not exist by its id."""
        match record:
            case Config():
                return f"{record.resource_name or 'cluster'} {record.key}"
            case RemoveTopic() | Partition() | PartitionChange():
                topic = self.registry.topics.get(record.topic_id)
                number = "" if isinstance(record, RemoveTopic) else f"-{record.partition}"
                return f"{record.topic_id if topic is None else topic.topic}{number}"
            case RegisterBroker() | UnregisterBroker() | BrokerRegistrationChange():
                return f"broker {record.broker}"
            case _:
                return getattr(record, "topic", "")

    def settings(self, topic: TopicRegistration) -> tuple[Settings, ...]:
        """Give what a topic's configuration may be: one, unless the controllers' own is needed and nobody knows it."""
        min_isr, unclean = self._config(topic.topic, MIN_ISR), self._config(topic.topic, UNCLEAN)
        most = self.writer.effective_min_isr(replace(topic, min_isr=_NO_CAP))
        minima = range(1, most + 1) if min_isr is None else (min(most, int(min_isr)),)
        permissions = (False, True) if unclean is None else (unclean.lower() == "true",)
        return tuple(Settings(minimum, allowed) for minimum in minima for allowed in permissions)

    def _config(self, topic: str, key: str) -> str | None:
        """Look a configuration up as the controller does: topic, cluster, its own properties."""
        for resource in ((RESOURCE_TOPIC, topic), (RESOURCE_BROKER, "")):
            if key in self._configs.get(resource, {}):
                return self._configs[resource][key]
        return self._static[key]

    # -------------------------------------------------------------- records

    @singledispatchmethod
    def apply(self, record: MetadataRecord) -> None:
        """Take in one record; those that say nothing about replication change nothing.

        Raises:
            Refused: it contradicts the state.
        """

    @apply.register
    def _(self, record: Topic) -> None:
        topic = TopicRegistration(topic=record.topic, topic_id=record.topic_id, partitions=0)
        self.registry.topics[record.topic_id] = topic
        self._ids[record.topic] = record.topic_id

    @apply.register
    def _(self, record: RemoveTopic) -> None:
        topic = self._topic(record.topic_id)
        for number in range(topic.partitions):
            self.registry.replace(topic, TopicPartition(topic.topic_id, number), None, Cause.DELETED)
        del self.registry.topics[topic.topic_id]
        del self._ids[topic.topic]
        self._configs.pop((RESOURCE_TOPIC, topic.topic), None)

    @apply.register
    def _(self, record: Partition) -> None:
        topic, key = self._topic(record.topic_id), TopicPartition(record.topic_id, record.partition)
        fields = {name: getattr(record, name) for name in PartitionRegistration._fields}
        self.registry.replace(topic, key, PartitionRegistration(**fields), Cause.CREATED)
        self._count(topic, max(topic.partitions, record.partition + 1))

    def _count(self, topic: TopicRegistration, partitions: int) -> None:
        self.registry.topics[topic.topic_id] = replace(topic, partitions=partitions)

    @apply.register
    def _(self, record: PartitionChange) -> None:
        topic, key = self._topic(record.topic_id), TopicPartition(record.topic_id, record.partition)
        before = self.registry.partitions.get(key)
        if before is None:
            raise Refused("this partition does not exist")
        self.registry.replace(topic, key, merge(before, record), Cause.UNKNOWN)

    @apply.register
    def _(self, record: ClearElr) -> None:
        topics = [self._topic(self._ids.get(record.topic))] if record.topic else list(self.registry.topics.values())
        for topic in topics:
            for number in range(topic.partitions):
                eligible = self.registry.partitions[TopicPartition(topic.topic_id, number)].elr
                self._voided.update((broker, topic.topic_id) for broker in eligible)
            self.writer.clear_elr(topic)

    def _topic(self, topic_id: TopicId | None) -> TopicRegistration:
        topic = None if topic_id is None else self.registry.topics.get(topic_id)
        if topic is None:
            raise Refused("this topic does not exist")
        return topic

    @apply.register
    def _(self, record: RegisterBroker) -> None:
        self._degraded.discard(record.broker)
        self.registry.brokers[record.broker] = BrokerRegistration(
            record.broker_epoch, record.incarnation_id, record.fenced, record.in_controlled_shutdown, record.rack
        )

    @apply.register
    def _(self, record: UnregisterBroker) -> None:
        self._broker(record.broker, record.broker_epoch)
        del self.registry.brokers[record.broker]

    @apply.register
    def _(self, record: BrokerRegistrationChange) -> None:
        registration = self._broker(record.broker, record.broker_epoch)
        if record.log_dirs is not None:
            self._degraded.add(record.broker)
        self.registry.brokers[record.broker] = registration._replace(
            fenced=registration.fenced if record.fenced == 0 else record.fenced > 0,
            in_controlled_shutdown=registration.in_controlled_shutdown or record.in_controlled_shutdown > 0,
        )

    def _broker(self, broker: BrokerId, epoch: int) -> BrokerRegistration:
        registration = self.registry.brokers.get(broker)
        if registration is None:
            raise Refused("this broker is not registered")
        if registration.epoch != epoch:
            raise Refused(f"this broker is registered with epoch {registration.epoch}")
        return registration

    @apply.register
    def _(self, record: Config) -> None:
        values = self._configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            values.pop(record.key, None)
        elif record.key in self._static:
            values[record.key] = record.value

    @apply.register
    def _(self, record: FeatureLevel) -> None:
        if record.feature == _ELR:
            self.writer.elr_enabled = record.level > 0
        elif record.feature == _METADATA_VERSION:
            bumps = record.level < _3_6_IV0  # KAFKA-15021
            self.writer.switches = replace(self.writer.switches, bump_leader_epoch_on_shrink=bumps)

    @apply.register
    def _(self, record: LeaderChange) -> None:
        if record.epoch <= self.controller_epoch:
            raise Refused(f"epoch {self.controller_epoch} had begun before")
        self.controller_epoch = record.epoch


def merge(before: PartitionRegistration, change: PartitionChange) -> PartitionRegistration:
    """Apply a change to a partition: what it names, and the epochs (``PartitionRegistration.merge``)."""
    changed = {name: value for name in before._fields if (value := getattr(change, name, None)) is not None}
    return before._replace(
        **changed,
        leader_epoch=before.leader_epoch + (change.leader is not None),
        partition_epoch=before.partition_epoch + 1,
    )
