"""What the ZooKeeper controller tells the brokers (``ControllerBrokerRequestBatch``): one request to each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.messages.control import LeaderAndIsr, StopReplica, UpdateMetadata
from streaming.model.messages.membership import MetadataPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.messages.outbox import Outbox
    from streaming.model.zookeeper.context import Context


class Announcements:
    """Speaks for one controller epoch."""

    def __init__(self, context: Context, outbox: Outbox) -> None:
        self._context = context
        self._outbox = outbox

    def leader_and_isr(self, keys: Iterable[TopicPartition], *, but: BrokerId | None = None) -> None:
        """Tell the live replicas of these partitions, all ``but`` one, who leads with which ISR."""
        items_of: dict[BrokerId, list[MetadataPartition]] = {}
        for key in keys:
            item = self._item(key)
            for replica in self._context.replicas(key):
                if replica != but and replica in self._context.registry.brokers:
                    items_of.setdefault(replica, []).append(item)
        for replica, items in items_of.items():
            self._outbox.send(replica, LeaderAndIsr(self._context.epoch, tuple(items)))

    def everything(self, brokers: Iterable[BrokerId]) -> None:
        """Tell brokers all that they host."""
        for broker in brokers:
            items = tuple(self._item(key) for key in self._context.registry.hosted_by(broker))
            self._outbox.send(broker, LeaderAndIsr(self._context.epoch, items, full=True))

    def live_brokers(self) -> None:
        """Tell every live broker who is alive."""
        brokers = tuple(self._context.registry.brokers.items())
        for broker, _ in brokers:
            self._outbox.send(broker, UpdateMetadata(self._context.epoch, brokers))

    def stop(self, broker: BrokerId, keys: Collection[TopicPartition], *, delete: bool) -> None:
        """Tell a live broker to stop replicating."""
        if keys and broker in self._context.registry.brokers:
            self._outbox.send(broker, StopReplica(self._context.epoch, tuple(keys), delete))

    def _item(self, key: TopicPartition) -> MetadataPartition:
        registry = self._context.registry
        return MetadataPartition(key, registry.topics[key.topic_id], registry.partitions[key])
