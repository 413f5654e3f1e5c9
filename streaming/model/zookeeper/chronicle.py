"""What somebody who looks at ZooKeeper all the time would see, told in the records of a metadata log.

Departs from Kafka: without KRaft there is no such log. Every write to a znode becomes the record that says the same,
so that whoever reads clusters reads this one, too. A broker whose session ended is told as unregistered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import Micros, Offset, TopicPartition
from streaming.contracts.records import (
    RESOURCE_TOPIC,
    Config,
    LeaderChange,
    MetadataRecord,
    RecordBatch,
    RegisterBroker,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from streaming.model.controller.change import record_of, record_of_creation
from streaming.model.controller.commit import MICROS_PER_MS, Commit
from streaming.model.controller.registry import Registry
from streaming.model.zookeeper.layout import (
    BROKER_IDS,
    CONTROLLER_EPOCH,
    CONTROLLER_PATH,
    TOPICS,
    StateData,
    broker_registration,
    registration_of,
)

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicId
    from streaming.model.controller.commit import CommitProbe
    from streaming.model.messages.zookeeper import Path, Znode
    from streaming.model.zookeeper.layout import TopicData
    from streaming.model.zookeeper.znodes import Znodes


class Chronicle:
    """The registry that the znodes amount to, and the commits that led there.

    Attributes:
        registry: the truth of the cluster.
        commits: since they were last taken.
    """

    def __init__(self, znodes: Znodes, *, origin: Micros) -> None:
        self.registry = Registry()
        self.commits: list[Commit] = []
        self.probe: CommitProbe | None = None
        self._znodes = znodes
        self._origin = origin
        self.committed_offset = 0
        self._records: list[MetadataRecord] = []

    def changed(self, path: Path) -> None:
        """A node was created, set or deleted."""
        znode = self._znodes.get(path)
        if path == CONTROLLER_EPOCH and znode is not None:
            controller = self._znodes.get(CONTROLLER_PATH)
            if controller is not None:
                self._records.append(LeaderChange(controller=controller.data, epoch=znode.data))
        elif path[:-1] == BROKER_IDS:
            self._broker(path[-1], znode)  # type: ignore[arg-type] # broker ids are the children of this node
        elif path[:-1] == TOPICS:
            self._topic(path[-1], znode)  # type: ignore[arg-type] # topic ids are the children of this node
        elif path[:2] == TOPICS and znode is not None:
            self._state(TopicPartition(path[2], path[4]), znode)  # type: ignore[arg-type] # as ``state_path`` has it

    def _broker(self, broker: BrokerId, znode: Znode | None) -> None:
        if znode is None:
            epoch = self.registry.brokers.pop(broker).epoch
            self._records.append(UnregisterBroker(broker=broker, broker_epoch=epoch))
            return
        registration = self.registry.brokers[broker] = broker_registration(znode)
        self._records.append(
            RegisterBroker(
                broker=broker, broker_epoch=registration.epoch, incarnation_id=registration.incarnation_id, fenced=False
            )
        )

    def _topic(self, topic_id: TopicId, znode: Znode | None) -> None:
        registry = self.registry
        if znode is None:
            topic = registry.topics[topic_id]
            for number in range(topic.partitions):
                key = TopicPartition(topic_id, number)
                if key in registry.partitions:  # else it was never led
                    registry.replace(topic, key, None, Cause.DELETED)
            registry.remove_topic(topic)
            self._records.append(RemoveTopic(topic_id=topic_id))
            return
        data: TopicData = znode.data
        registry.add_topic(data.topic)
        self._records.append(Topic(topic=data.topic.topic, topic_id=topic_id))
        self._records += (
            Config(resource_type=RESOURCE_TOPIC, resource_name=data.topic.topic, key=key, value=value)
            for key, value in data.config.items()
        )

    def _state(self, key: TopicPartition, znode: Znode) -> None:
        topic_znode = self._znodes.get((*TOPICS, key.topic_id))
        assert topic_znode is not None, f"{key}: a state without a topic"  # noqa: S101 - deleted together
        topic: TopicData = topic_znode.data
        state: StateData = znode.data
        before = self.registry.partitions.get(key)
        after = registration_of(topic.assignment[key.partition], znode)
        self.registry.replace(topic.topic, key, after, Cause.CREATED if before is None else state.cause)
        if before is not None:
            self._records.append(record_of(key, before, after))
            return
        self._records.append(record_of_creation(key, after))

    def commit(self, now: int) -> None:
        """One look: what changed since the last one, as a batch; nothing if nothing did."""
        if not self._records:
            return
        epoch = self._znodes.get(CONTROLLER_EPOCH)
        batch = RecordBatch(
            base_offset=Offset(self.committed_offset),
            epoch=0 if epoch is None else epoch.data,
            timestamp=Micros(self._origin + now * MICROS_PER_MS),
            records=tuple(self._records),
        )
        self.committed_offset += len(self._records)
        self.commits.append(Commit(now, batch, tuple(self.registry.transitions)))
        if self.probe is not None:
            self.probe.committed(self.commits[-1])
        self._records.clear()
        self.registry.transitions.clear()
