"""Layout of Kafka's data in ZooKeeper: paths, and the data behind them. Values only."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import BrokerEpoch
from streaming.model.messages.registrations import BrokerRegistration, PartitionRegistration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.events import Cause
    from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
    from streaming.model.messages.registrations import TopicRegistration
    from streaming.model.messages.zookeeper import Path, Znode

CONTROLLER_PATH: Final[Path] = ("controller",)
CONTROLLER_EPOCH: Final[Path] = ("controller_epoch",)
BROKER_IDS: Final[Path] = ("brokers", "ids")
TOPICS: Final[Path] = ("brokers", "topics")
DELETED_TOPICS: Final[Path] = ("admin", "delete_topics")
ISR_CHANGES: Final[Path] = ("isr_change_notification",)


class TopicData(NamedTuple):
    """``/brokers/topics/T``: the replicas of each partition. The configuration, elsewhere in Kafka, stands with it."""

    topic: TopicRegistration
    assignment: tuple[tuple[BrokerId, ...], ...]
    config: Mapping[str, str]


class StateData(NamedTuple):
    """``/brokers/topics/T/partitions/P/state``; the version of the node is the partition epoch.

    ``cause`` is a ghost: why it was written, which no znode tells.
    """

    leader: BrokerId
    leader_epoch: int
    isr: tuple[BrokerId, ...]
    controller_epoch: int
    cause: Cause


def broker_path(broker: BrokerId) -> Path:
    """``/brokers/ids/1``: bound to the broker's session; its czxid is the broker epoch."""
    return (*BROKER_IDS, broker)


def topic_path(topic_id: TopicId) -> Path:
    """``/brokers/topics/T``. Departs from Kafka: topics go by id here, by name there."""
    return (*TOPICS, topic_id)


def state_path(key: TopicPartition) -> Path:
    """``/brokers/topics/T/partitions/P/state``."""
    return (*TOPICS, key.topic_id, "partitions", key.partition, "state")


def registration_of(replicas: tuple[BrokerId, ...], znode: Znode) -> PartitionRegistration:
    """Give a partition as brokers know it."""
    state: StateData = znode.data
    return PartitionRegistration(replicas, state.isr, state.leader, state.leader_epoch, znode.version)


def broker_registration(znode: Znode) -> BrokerRegistration:
    """Give a broker as others know it: it is alive as long as its node exists."""
    return BrokerRegistration(BrokerEpoch(znode.created), znode.data, fenced=False)


# States of a partition for the ZooKeeper controller (``PartitionStateMachine``), as a table. Pure.


class PartitionState(Enum):
    """Only the last two can be told from ZooKeeper; the others live in the controller's memory."""

    NON_EXISTENT = auto()
    """Never created, or deleted."""
    NEW = auto()
    """It has replicas, but no leader and no ISR yet."""
    ONLINE = auto()
    """A live broker leads it."""
    OFFLINE = auto()
    """Its leader died and no other replica may lead."""


_NONE, _NEW, _ONLINE, _OFFLINE = PartitionState
# States from which a state may be entered.
ENTERED_FROM: Final[dict[PartitionState, frozenset[PartitionState]]] = {
    _NONE: frozenset({_OFFLINE}),
    _NEW: frozenset({_NONE}),
    _ONLINE: frozenset({_NEW, _ONLINE, _OFFLINE}),
    _OFFLINE: frozenset({_NEW, _ONLINE, _OFFLINE}),
}


def enter(current: PartitionState, following: PartitionState) -> PartitionState:
    """Give the following state; a way that the table does not have is a mistake of the controller."""
    assert current in ENTERED_FROM[following], f"{current} -> {following}"  # noqa: S101 - IllegalStateException
    return following
