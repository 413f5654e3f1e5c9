"""How fast simulated brokers respond, and who is behind in replication, as a monitor of a real cluster measures it.

A request of a monitor takes the network's time and no more: the model's brokers act at once, and its slow disks delay
only what followers are sent. So there a slow broker shows in replication alone.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import BrokerId, TopicPartition
from streaming.contracts.sample_blocks import speeds_in_block
from streaming.contracts.samples import BrokerSpeedObserved
from streaming.sources.replication_pairs import PairCounts, ReplicationPairs
from streaming.sources.simulated.network import LATENCY_MS

if TYPE_CHECKING:
    from random import Random

    from streaming.contracts.observations import Observation
    from streaming.model.cluster.cluster import Cluster
    from streaming.model.messages.registrations import PartitionRegistration

_REQUESTS: Final = 5
_MICROS_PER_MS: Final = 1000


class SimulatedSpeeds:
    """Measures every reachable broker, round by round.

    Args:
        simulated: the cluster.
        random: of latencies.
    """

    def __init__(self, simulated: Cluster, random: Random) -> None:
        self._simulated, self._random = simulated, random
        self._pairs = ReplicationPairs()

    def round(self, envelope: dict[str, Any]) -> list[Observation]:
        """Measure once; nothing while no broker responds."""
        registry, names = self._simulated.controller.registry, dict[TopicPartition, str]()
        topics: dict[str, dict[int, PartitionRegistration]] = {}
        for key, placed in registry.partitions.items():
            names[key] = registry.topics[key.topic_id].topic
            topics.setdefault(names[key], {})[key.partition] = placed
        ends: dict[str, dict[int, int]] = {}
        follower_ends: dict[BrokerId, dict[str, dict[int, int]]] = {}
        for broker in self._simulated.reachable():
            for key in filter(broker.disk.has, names):
                is_led = registry.partitions[key].leader == broker.broker
                of_broker = ends if is_led else follower_ends.setdefault(broker.broker, {})
                of_broker.setdefault(names[key], {})[key.partition] = broker.disk.replicas[key].log.end
        alive = [BrokerId(broker) for broker, seen in registry.brokers.items() if not seen.fenced]
        pairs = self._pairs.take(alive, topics, ends, follower_ends)
        measured = [broker.broker for broker in self._simulated.reachable() if broker.broker in pairs]
        return [speeds_in_block([self._speed(each, pairs[each], envelope) for each in measured])] if measured else []

    def _speed(self, broker: BrokerId, pairs: PairCounts, envelope: dict[str, Any]) -> BrokerSpeedObserved:
        times = [self._random.randint(*LATENCY_MS) + self._random.randint(*LATENCY_MS) for _ in range(_REQUESTS)]
        return BrokerSpeedObserved(
            **envelope,
            broker=broker,
            response_micros=round(median(times)) * _MICROS_PER_MS,
            slowest_response_micros=max(times) * _MICROS_PER_MS,
            **pairs._asdict(),
        )
