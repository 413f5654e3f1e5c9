"""Writers of a simulated cluster: anonymous producers that write at a rate, whatever happens to the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import TopicPartition

if TYPE_CHECKING:
    from random import Random

    from streaming.sources.simulated.stage import Stage

TRAFFIC_MS: Final = 200


class Writers:
    """Writes to every topic that has a rate. ``batches`` counts what was sent."""

    def __init__(self, stage: Stage, random: Random) -> None:
        self._stage = stage
        self._random = random
        self.batches = 0

    def write(self) -> None:
        """Write one round: each partition a random share around its topic's rate."""
        for plan in self._stage.scenario.topics:
            topic_id = self._stage.topic_ids.get(plan.name)
            if topic_id is not None and plan.records_per_second > 0:
                mean = plan.records_per_second * TRAFFIC_MS / 1_000
                counts = ((number, self._share(mean)) for number in range(plan.partitions))
                appends = {TopicPartition(topic_id, number): count for number, count in counts if count}
                self.batches += len(appends)
                self._stage.cluster.produce(appends, acks_all=plan.acks == "all")

    def _share(self, mean: float) -> int:
        """A whole number with this mean, up to twice as much."""
        return int(self._random.random() * 2 * mean + self._random.random())
