"""Reports of simulated brokers and controllers: positions, transactions, disks, quorum, metrics.

A process that is down or frozen reports nothing, as in a real cluster.
"""

from __future__ import annotations

from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.health import replication_factor
from streaming.contracts.identifiers import MILLISECOND, BrokerId, ClusterId, Micros, Offset, TopicId, TopicPartition
from streaming.contracts.observations import CLUSTER_TIMES, MIN_ISR, ConfigObserved, ConfigOrigin, SourceKind
from streaming.contracts.sample_blocks import (
    BrokerMetricsObserved,
    TopicsSettingsObserved,
    offsets_in_blocks,
    speeds_in_block,
)
from streaming.contracts.samples import (
    BrokerSpeedObserved,
    GroupObserved,
    GroupOffsetsObserved,
    LogDirectoryObserved,
    QuorumMemberObserved,
    ReplicaOffsetsObserved,
    TransactionObserved,
)
from streaming.contracts.settings import BrokerSettingsObserved
from streaming.model.cluster.descriptions import (
    UndecidedTransaction,
    described_groups,
    group_offsets,
    hanging,
    undecided,
)
from streaming.model.controller.metadata_writer import MICROS_PER_MS
from streaming.model.nodes.quorum.controllers import Controllers
from streaming.sources.samples.high_watermarks import HighWatermarks
from streaming.sources.samples.replication_pairs import PairCounts, ReplicationPairs
from streaming.sources.simulated.faults import LATENCY_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streaming.contracts.observations import Observation
    from streaming.model.cluster.cluster import Cluster
    from streaming.model.cluster.descriptions import GroupOffsets
    from streaming.model.messages.registrations import PartitionRegistration
    from streaming.model.nodes.broker import Broker

_PREFIX: Final = "kafka_server_replicamanager_"
# JMX-exporter names (dialect A), and how a broker counts them: its leaders only, its own ISR changes only.
METRICS: Final[dict[str, Callable[[Broker], int]]] = {
    _PREFIX + "underreplicatedpartitions": lambda broker: sum(
        led.is_under_replicated for led in broker.led_partitions()
    ),
    _PREFIX + "underminisrpartitioncount": lambda broker: sum(led.is_under_min_isr for led in broker.led_partitions()),
    _PREFIX + "leadercount": lambda broker: len(broker.led_partitions()),
    _PREFIX + "partitioncount": lambda broker: len(broker.disk.replicas),
    _PREFIX + "isrshrinks_total": lambda broker: broker.leadership.proposals.isr_shrinks,
    _PREFIX + "isrexpands_total": lambda broker: broker.leadership.proposals.isr_expands,
    _PREFIX + "failedisrupdates_total": lambda broker: broker.leadership.proposals.failed_isr_updates,
}
_READINGS_APART: Final = Micros(30_000_000)
_CLEANUP: Final = "cleanup.policy"
_BYTES_PER_RECORD: Final = 1_024  # the model counts records only


class Reports:
    """Asks every reachable process of a simulated cluster."""

    def __init__(self, simulated: Cluster, *, cluster_id: ClusterId, cluster: str, source: str) -> None:
        self._simulated = simulated
        self._identity = {
            "cluster_id": cluster_id,
            "cluster": cluster,
            "source": source,
            "source_kind": SourceKind.NONE,
        }
        self._speeds = SimulatedSpeeds(simulated, Random(f"{cluster_id} requests"))  # noqa: S311 - reproducible
        self._high_watermarks = HighWatermarks(_READINGS_APART)

    def _envelope(self, now: Micros) -> dict[str, Any]:
        moments = dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), now)
        return self._identity | moments

    def offsets(self, now: Micros) -> list[Observation]:
        """Give the log positions of every replica; the last stable offset is the leader's own knowledge."""
        envelope, topics, ends = self._envelope(now), self._simulated.controller.registry.topics, self._leader_ends()
        samples = [
            ReplicaOffsetsObserved(
                **envelope,
                topic_id=key.topic_id,
                topic=topics[key.topic_id].topic,
                partition=key.partition,
                broker=broker.broker,
                log_start_offset=Offset(replica.log.start),
                last_stable_offset=Offset(led.last_stable_offset) if led is not None else None,
                high_watermark=Offset(replica.high_watermark),
                log_end_offset=Offset(replica.log.end),
                leader_log_end_offset=ends.get(key),
                size_bytes=(replica.log.end - replica.log.start) * _BYTES_PER_RECORD,
                log_dir=broker.disk.log_dirs.placed.get(key, broker.disk.log_dirs.names[0]),
            )
            for broker in self._simulated.reachable()
            for key, replica in broker.disk.replicas.items()
            if key.topic_id in topics
            for led in [broker.leadership.led.get(key)]
        ]
        self._remember(samples, now)
        return [*offsets_in_blocks(samples)]

    def _remember(self, samples: Iterable[ReplicaOffsetsObserved], now: Micros) -> None:
        """Remember the high watermarks of leaders, which have a last stable offset."""
        topics, of_leaders = self._simulated.controller.registry.topics, dict[str, dict[int, int]]()
        for sample in samples:
            if sample.last_stable_offset is not None and sample.high_watermark is not None:
                of_leaders.setdefault(sample.topic, {})[sample.partition] = sample.high_watermark
        self._high_watermarks.retain(topics)
        self._high_watermarks.put({topic.topic: key for key, topic in topics.items()}, of_leaders, now, now)

    def times(self, now: Micros) -> list[Observation]:
        """Give the configured times, as a broker answers DescribeConfigs to the reader of the metadata log."""
        envelope = {**self._envelope(now), "source_kind": SourceKind.METADATA_LOG}
        constants = self._simulated.constants
        common: dict[str, Any] = {**envelope, "topic": "", "origin": ConfigOrigin.DESCRIBE}
        times = [
            ConfigObserved(**common, key=key, value=str(getattr(constants, column)))
            for key, column in CLUSTER_TIMES.items()
        ]
        if not (own := dict(constants.min_insync_replicas_of)):
            return [*times]
        brokers = tuple(self._simulated.controller.registry.brokers)
        values = tuple(own.get(broker, constants.min_insync_replicas) for broker in brokers)
        return [*times, ConfigObserved(**common, key=MIN_ISR, brokers=brokers, values=values)]

    def _leader_ends(self) -> dict[TopicPartition, Offset]:
        """Give where the log of each leader ends; of two that believe they lead, the one of the later leader epoch."""
        led = [
            (leader.committed.leader_epoch, key, Offset(broker.disk.replicas[key].log.end))
            for broker in self._simulated.reachable()
            for key, leader in broker.leadership.led.items()
            if key in broker.disk.replicas
        ]
        return {key: end for _, key, end in sorted(led)}

    def groups(self, now: Micros) -> list[Observation]:
        """Give every group, and every partition that one has committed or been assigned."""
        envelope, topics = self._envelope(now), self._simulated.controller.registry.topics
        described: list[Observation] = [
            GroupObserved(
                **envelope,
                group=description.group,
                group_protocol=description.protocol,
                group_state=description.state.value,
                members=description.members,
                assignor=description.assignor,
                coordinator=description.coordinator,
            )
            for description in described_groups(self._simulated)
        ]
        described += (
            GroupOffsetsObserved(
                **envelope,
                group=group_offset.group,
                group_protocol=group_offset.protocol,
                group_state=group_offset.state.value,
                members=group_offset.members,
                member=group_offset.member,
                topic_id=group_offset.topic_partition.topic_id,
                topic=topics[group_offset.topic_partition.topic_id].topic,
                partition=group_offset.topic_partition.partition,
                committed_offset=_offset(group_offset.committed),
                lag_seconds=self._lag_seconds(group_offset, now),
                positions_at=now,
                log_start_offset=_offset(group_offset.log_start),
                last_stable_offset=_offset(group_offset.last_stable_offset),
                high_watermark=_offset(group_offset.high_watermark),
                readable_at=now,
            )
            for group_offset in group_offsets(self._simulated)
            if group_offset.topic_partition.topic_id in topics
        )
        return described

    def _lag_seconds(self, of_group: GroupOffsets, now: Micros) -> float | None:
        if of_group.committed is None or of_group.high_watermark is None:
            return None
        (topic_id, number), end = of_group.topic_partition, of_group.high_watermark
        passed = max(of_group.committed, of_group.log_start or 0)
        return self._high_watermarks.lag_seconds(topic_id, {number: passed}, {number: end}, now).get(number)

    def transactions(self, now: Micros) -> list[Observation]:
        """Give the transactions that are open, and those that a partition has open and no coordinator knows."""
        reported: list[Observation] = [
            self._transaction(now, transaction) for transaction in undecided(self._simulated).values()
        ]
        reported += (
            TransactionObserved(
                **self._envelope(now),
                producer_id=producer_id,
                producer_epoch=transaction.producer_epoch,
                transaction_state="Unknown",
                transaction_partitions=tuple(self._names(transaction.partitions)),
                is_hanging=True,
            )
            for producer_id, transaction in hanging(self._simulated).items()
        )
        return reported

    def _transaction(self, now: Micros, undecided: UndecidedTransaction) -> Observation:
        metadata = undecided.metadata
        return TransactionObserved(
            **self._envelope(now),
            transactional_id=undecided.transactional_id,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            coordinator=undecided.coordinator,
            transaction_state=metadata.state.name.replace("_", " ").title().replace(" ", ""),
            timeout_ms=metadata.timeout_ms,
            started_at=self._moment(now, metadata.start_ms),
            transaction_partitions=tuple(self._names(metadata.partitions)),
        )

    def _names(self, keys: tuple[TopicPartition, ...]) -> Iterator[str]:
        topics = self._simulated.controller.registry.topics
        yield from (f"{topics[key.topic_id].topic}-{key.partition}" for key in keys if key.topic_id in topics)

    def _moment(self, now: Micros, at_ms: int | None) -> Micros | None:
        """Spell a model time as wall-clock time."""
        return None if at_ms is None or at_ms < 0 else Micros(now - (self._simulated.now - at_ms) * MICROS_PER_MS)

    def log_directories(self, now: Micros) -> list[Observation]:
        """Give every directory of every broker."""
        envelope = self._envelope(now)
        return [
            LogDirectoryObserved(
                **envelope,
                broker=broker.broker,
                log_dir=name,
                is_online=name not in broker.disk.log_dirs.offline,
                hosted_replicas=len(logs),
                replica_bytes=sum(log.end - log.start for log in logs) * _BYTES_PER_RECORD,
            )
            for broker in self._simulated.reachable()
            for name in broker.disk.log_dirs.names
            for logs in [broker.disk.logs_in(name)]
        ]

    def quorum(self, now: Micros) -> list[Observation]:
        """Give the members of the metadata quorum; nothing while it has no leader, or without KRaft."""
        controllers = self._simulated.controllers
        quorum = controllers.describe(self._simulated.now) if isinstance(controllers, Controllers) else None
        if quorum is None:
            return []
        envelope = self._envelope(now)
        return [
            QuorumMemberObserved(
                **envelope,
                node=member.node,
                is_voter=member.is_voter,
                controller=quorum.leader,
                controller_epoch=quorum.epoch,
                high_watermark=Offset(quorum.high_watermark),
                log_end_offset=_offset(member.log_end_offset),
                last_fetch_at=self._moment(now, member.last_fetch_ms),
                last_caught_up_at=self._moment(now, member.last_caught_up_ms),
            )
            for member in quorum.members
        ]

    def speed(self, now: Micros) -> list[Observation]:
        """Give how fast every broker responds, and who is behind, since the round before."""
        return self._speeds.round(self._envelope(now))

    def settings(self, now: Micros) -> list[Observation]:
        """Give the settings of every topic, and of every broker: the model has neither throttles nor versions."""
        envelope, constants, brokers = self._envelope(now), self._simulated.constants, [*self._simulated.reachable()]
        of_brokers = [
            BrokerSettingsObserved(
                **envelope,
                broker=broker.broker,
                **{column: getattr(constants, column) for column in CLUSTER_TIMES.values()},
                allows_unclean_election=constants.unclean_leader_election_enable,
            )
            for broker in brokers
        ]
        has_topics = bool(brokers and self._simulated.controller.registry.topics)
        return [*([self._topic_settings({**envelope, "broker": brokers[0].broker})] if has_topics else []), *of_brokers]

    def _topic_settings(self, envelope: dict[str, Any]) -> Observation:
        registry = self._simulated.controller.registry
        topics, factors = [*registry.topics.values()], dict[TopicId, int]()
        for key, partition in registry.partitions.items():
            count = replication_factor(partition.replicas, partition.adding_replicas)
            factors[key.topic_id] = min(count, factors.get(key.topic_id, count))
        arrays = {
            "topic_id": tuple(topic.topic_id for topic in topics),
            "topic": tuple(topic.topic for topic in topics),
            "partition_count": tuple(topic.partitions for topic in topics),
            "replication_factor": tuple(factors[topic.topic_id] for topic in topics),
            "min_isr": tuple(topic.min_isr for topic in topics),
            "allows_unclean_election": tuple(topic.unclean for topic in topics),
            "cleanup_policy": tuple(registry.configs.get((topic.topic, _CLEANUP), "delete") for topic in topics),
        }
        return TopicsSettingsObserved(**envelope, arrays=arrays)

    def metrics(self, now: Micros) -> list[Observation]:
        """Give every metric of every broker."""
        envelope = self._envelope(now)
        return [
            BrokerMetricsObserved(
                **envelope,
                broker=broker.broker,
                arrays={
                    "metric": tuple(METRICS),
                    "metric_value": tuple(float(count(broker)) for count in METRICS.values()),
                },
            )
            for broker in self._simulated.reachable()
        ]


def _offset(offset: int | None) -> Offset | None:
    return None if offset is None else Offset(offset)


# Response times and replication pairs of simulated brokers, as a monitor of a real cluster measures them.
#
# A request of a monitor takes the network's time and no more: the model's brokers act at once, and its slow disks
# delay only what followers are sent. So there a slow broker shows in replication alone.


_REQUESTS: Final = 5


class SimulatedSpeeds:
    """Measures every reachable broker, round by round."""

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
            response_micros=round(median(times)) * MILLISECOND,
            slowest_response_micros=max(times) * MILLISECOND,
            **pairs._asdict(),
        )
