"""What the simulated brokers report of themselves: log positions, and the metrics that JMX would show.

A process that is down or frozen reports nothing, as in life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import ClusterId, Micros, Offset
from streaming.contracts.observations import Authority, Observation
from streaming.contracts.samples import BrokerMetricObserved, ReplicaOffsetsObserved

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.model.broker.broker import Broker
    from streaming.model.cluster import Cluster

_PREFIX: Final = "kafka_server_replicamanager_"
# JMX-exporter names (dialect A), and how a broker counts them: its leaders only, its own ISR changes only.
METRICS: Final[dict[str, Callable[[Broker], int]]] = {
    _PREFIX + "underreplicatedpartitions": lambda it: sum(led.is_under_replicated for led in it.led_partitions()),
    _PREFIX + "underminisrpartitioncount": lambda it: sum(led.is_under_min_isr for led in it.led_partitions()),
    _PREFIX + "leadercount": lambda it: len(it.led_partitions()),
    _PREFIX + "partitioncount": lambda it: len(it.disk.replicas),
    _PREFIX + "isrshrinks_total": lambda it: it.leadership.proposals.isr_shrinks,
    _PREFIX + "isrexpands_total": lambda it: it.leadership.proposals.isr_expands,
}


class Reports:
    """Asks every reachable broker of a simulated cluster."""

    def __init__(self, simulated: Cluster, *, cluster_id: ClusterId, cluster: str, source: str) -> None:
        self._simulated = simulated
        self._cluster_id = cluster_id
        self._cluster = cluster
        self._source = source

    def offsets(self, now: Micros) -> list[Observation]:
        """Give the log positions of every replica."""
        topics = self._simulated.controller.registry.topics
        return [
            ReplicaOffsetsObserved(
                cluster_id=self._cluster_id,
                cluster=self._cluster,
                source=self._source,
                authority=Authority.NONE,
                occurred_not_before=now,
                occurred_not_after=now,
                collected_at=now,
                topic_id=key.topic_id,
                topic=topics[key.topic_id].topic,
                partition=key.partition,
                broker=broker.broker,
                log_start_offset=Offset(replica.log.start),
                high_watermark=Offset(replica.high_watermark),
                log_end_offset=Offset(replica.log.end),
            )
            for broker in self._simulated.reachable()
            for key, replica in broker.disk.replicas.items()
            if not broker.disk.log_dirs.is_offline(key)
            if key.topic_id in topics
        ]

    def metrics(self, now: Micros) -> list[Observation]:
        """Give every metric of every broker."""
        return [
            BrokerMetricObserved(
                cluster_id=self._cluster_id,
                cluster=self._cluster,
                source=self._source,
                authority=Authority.NONE,
                occurred_not_before=now,
                occurred_not_after=now,
                collected_at=now,
                broker=broker.broker,
                metric=metric,
                metric_value=float(count(broker)),
            )
            for broker in self._simulated.reachable()
            for metric, count in METRICS.items()
        ]
