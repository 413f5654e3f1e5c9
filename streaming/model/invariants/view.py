"""One partition as the observer sees it: the truth, everybody's view, and the ghost's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.contracts.health import effective_min_isr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.cluster import Cluster
    from streaming.model.constants import Constants
    from streaming.model.invariants.ghost import Ghost, Memory
    from streaming.model.registrations import BrokerRegistration, PartitionRegistration, TopicRegistration
    from streaming.model.server.broker import Broker
    from streaming.model.storage.log import Log
    from streaming.model.storage.replica import LocalReplica


class View(NamedTuple):
    """Everything that an invariant of one partition may look at.

    Attributes:
        truth: the controller's state of the partition.
        constants: the cluster's configuration.
        registrations: the controller's state of the brokers.
        processes: the running brokers, paused ones included.
        believers: who believes to lead the partition; several during a change of leaders.
        replicas: what is on the brokers' disks.
        accepted: brokers whose running process is the one that the controller registered.
        excuse: what excuses a loss now; empty if nothing does.
    """

    key: TopicPartition
    topic: TopicRegistration
    truth: PartitionRegistration
    constants: Constants
    registrations: Mapping[BrokerId, BrokerRegistration]
    processes: Mapping[BrokerId, Broker]
    believers: Mapping[BrokerId, LeaderPartition]
    replicas: Mapping[BrokerId, LocalReplica]
    memory: Memory
    accepted: frozenset[BrokerId]
    excuse: str = ""

    @property
    def min_isr(self) -> int:
        """The effective minimum ISR."""
        return effective_min_isr(self.topic.min_isr, self.truth.replicas) or 1

    def log(self, broker: BrokerId) -> Log | None:
        """Give a broker's log, None if it has none yet."""
        replica = self.replicas.get(broker)
        return None if replica is None else replica.log

    def end(self, broker: BrokerId) -> int:
        """Give where a broker's log ends, 0 if it has none yet."""
        replica = self.replicas.get(broker)
        return 0 if replica is None else replica.log.end

    def is_accepted(self, broker: BrokerId) -> bool:
        """Return whether the running process of a broker is the one that the controller registered."""
        return broker in self.accepted

    def answers_for(self, broker: BrokerId) -> bool:
        """Return whether a broker has to hold what is committed: not while a damaged disk is not known as such."""
        return broker not in self.memory.damaged or (self.is_accepted(broker) and not self.excuse)

    def heirs(self) -> dict[BrokerId, LeaderPartition]:
        """Give those who believe to lead and belong to the present history."""
        return {
            broker: leader
            for broker, leader in self.believers.items()
            if leader.committed.leader_epoch >= self.memory.history
        }


def look(cluster: Cluster, ghost: Ghost, key: TopicPartition) -> View | None:
    """Look at one partition; None once it is deleted. Costs as much as there are brokers."""
    registry, memory = cluster.controller.registry, ghost.memory(key)
    truth = registry.partitions.get(key)
    if truth is None:
        return None
    replicas = {broker: disk.replicas[key] for broker, disk in cluster.disks.items() if key in disk.replicas}
    return View(
        key=key,
        topic=registry.topics[key.topic_id],
        truth=truth,
        constants=cluster.constants,
        registrations=registry.brokers,
        processes=cluster.brokers,
        believers={
            node: broker.leadership.led[key] for node, broker in cluster.brokers.items() if key in broker.leadership.led
        },
        replicas=replicas,
        memory=memory,
        accepted=frozenset(broker for broker in cluster.brokers if ghost.is_accepted(broker)),
        excuse=ghost.excuse(key, truth),
    )
