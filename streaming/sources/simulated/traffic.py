"""Writers of a simulated cluster: anonymous producers that write at a rate, whatever happens to the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import TopicPartition

if TYPE_CHECKING:
    from random import Random

    from streaming.contracts.identifiers import TopicId
    from streaming.sources.simulated.scenario import TopicPlan
    from streaming.sources.simulated.simulation import Simulation

TRAFFIC_MS: Final = 200


class Writers:
    """Writes to every topic that has a rate. ``batches`` counts what was sent."""

    def __init__(self, simulation: Simulation, random: Random) -> None:
        self._simulation = simulation
        self._random = random
        self.batches = 0
        self._keys: dict[TopicId, tuple[TopicPartition, ...]] = {}

    def write(self) -> None:
        """Write one round: each partition a random share around its topic's rate."""
        for plan in self._simulation.scenario.topics:
            topic_id = self._simulation.topic_ids.get(plan.name)
            if topic_id is not None and plan.records_per_second > 0:
                mean = plan.records_per_second * TRAFFIC_MS / 1_000
                counts = ((number, self._share(mean)) for number in range(plan.partitions))
                appends = {TopicPartition(topic_id, number): count for number, count in counts if count}
                self.batches += len(appends)
                self._simulation.cluster.produce(appends, acks_all=plan.acks == "all")

    def _partitions(self, plan: TopicPlan, topic_id: TopicId) -> tuple[TopicPartition, ...]:
        """Name a topic's partitions once, not each round."""
        if topic_id not in self._keys:
            self._keys[topic_id] = tuple(TopicPartition(topic_id, number) for number in range(plan.partitions))
        return self._keys[topic_id]

    def _share(self, mean: float) -> int:
        """A whole number with this mean, up to twice as much."""
        return int(self._random.random() * 2 * mean + self._random.random())
