"""The gauges and meters of Kafka's own MBeans, derived from the tables: no broker needs an agent for them.

The names are those of the Prometheus JMX exporter's Kafka example, in lower case, which Strimzi and others use as well,
and so do their dashboards and alerts. The labels are those of Grafana's kafka-observ-lib: ``kafka_cluster``, and as
``instance`` the id of the node whose MBean it is, since a node without an agent has no other name that never changes.

What a broker counts, it counts of the partitions that it leads, or hosts. Gauges of a broker that is fenced are absent,
as the agent's are while its broker is down: dashboards count the brokers by their series. What every controller reports
of the whole cluster is here once, of the active one, so that a sum over controllers is right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.metrics.metric import ClusterMetric, Freshness, MetricType, SampledMetric
from exporters.read_model.cluster_samples import is_reassigned
from streaming.contracts import health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from exporters.metrics.metric import DatedSample, Number, Sample
    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.state import PartitionState

# A metric that Kafka itself has as an MBean: its name follows from the MBean's, its value from the tables.


LABELS: Final = ("kafka_cluster", "instance")
PARTITION_LABELS: Final = (*LABELS, "topic", "partition")


class MBeanMetric(NamedTuple):
    """A metric, and the MBean where Kafka has it.

    One that ``is_of_cluster`` has the same value at every controller, so that one of them is exposed.
    """

    mbean: str
    metric: ClusterMetric | SampledMetric
    is_of_cluster: bool = False


def name_of(mbean: str) -> str:
    """Return the name of a metric as the JMX exporter's Kafka example makes it of an MBean.

    >>> name_of("kafka.server:type=ReplicaManager,name=IsrShrinksPerSec")
    'kafka_server_replicamanager_isrshrinks_total'
    """
    domain, _, properties = mbean.partition(":")
    words = [each.partition("=")[2] for each in properties.split(",")[:2]]
    name = "_".join((domain.replace(".", "_"), *words)).lower()
    return f"{name.removesuffix('persec')}_total" if name.endswith("persec") else name


def derived(  # noqa: PLR0913 - what a metric is made of
    mbean: str,
    text: str,
    source: str,
    samples: Callable[[ClusterSnapshot], Iterable[Sample]],
    labels: tuple[str, ...] = LABELS,
    *,
    is_of_cluster: bool = False,
) -> MBeanMetric:
    """Define a metric that follows from the state; a meter is a counter."""
    is_meter = mbean.endswith("PerSec")
    metric = ClusterMetric(
        name=name_of(mbean),
        kind=MetricType.COUNTER if is_meter else MetricType.GAUGE,
        labels=labels,
        help=text,
        freshness=Freshness.NOT_REQUIRED if is_meter else Freshness.STATE,
        source=source,
        samples=samples,
    )
    return MBeanMetric(mbean, metric, is_of_cluster)


def sampled(
    mbean: str,
    text: str,
    source: str,
    samples: Callable[[ClusterSnapshot], Iterable[DatedSample]],
    labels: tuple[str, ...] = LABELS,
) -> MBeanMetric:
    """Define a metric that follows from the newest rows of a table of samples."""
    metric = SampledMetric(name=name_of(mbean), labels=labels, help=text, source=source, samples=samples)
    return MBeanMetric(mbean, metric)


def running(cluster: ClusterSnapshot) -> list[int]:
    """Return the brokers that an agent could be asked on, by what the controller says."""
    brokers = sorted(cluster.brokers.items())
    return [number for number, broker in brokers if cluster.is_registered(broker) and not broker.is_fenced]


# The MBeans of partitions and of the logs of their replicas: a broker has one for each.


def _partition(
    name: str, text: str, column: str, is_counted: Callable[[PartitionState], object], state: str
) -> MBeanMetric:
    """Define a flag of partitions: 1 of each for which it holds, and one 0 of the broker for all the others.

    An empty label is no label: a sum has all that it needs, without a series for every healthy partition.
    """

    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        if cluster.counts.in_state(state) is None:
            return
        brokers = running(cluster)
        for number in brokers:
            yield (cluster.name, str(number), "", ""), 0
        partitions = cluster.partitions() if state == health.AT_MIN_ISR else cluster.unsettled.values()
        for each in partitions:
            if is_counted(each) and each.leader in brokers:
                yield (cluster.name, str(each.leader), each.topic, str(each.partition)), 1

    mbean = f"kafka.cluster:type=Partition,name={name},topic=*,partition=*"
    return derived(mbean, text, f"partition_state.{column}", samples, PARTITION_LABELS)


def _is_at_min_isr(partition: PartitionState) -> bool:
    """Return what Kafka says, which counts partitions that never had a replica to spare (KIP-427)."""
    return not partition.is_diskless and len(partition.isr) == partition.min_isr_effective


def _log(name: str, column: str, text: str) -> MBeanMetric:
    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        rows = cluster.samples.replica_logs
        if rows is None:
            return
        columns = (rows[each].to_pylist() for each in ("topic_id", "partition", "broker", column, "collected_at"))
        for topic_id, partition, broker, value, at in zip(*columns, strict=True):
            topic = cluster.topics.get(topic_id)
            if value is not None and topic is not None:
                yield (cluster.name, str(broker), topic.topic, str(partition)), value, at

    mbean = f"kafka.log:type=Log,name={name},topic=*,partition=*"
    return sampled(mbean, text, f"replica_offsets.{column}", samples, PARTITION_LABELS)


PARTITION_MBEANS: Final = (
    _partition(
        "UnderReplicated",
        "1 of an under-replicated partition; one 0 of its leader for all others.",
        "is_under_replicated",
        lambda each: each.is_under_replicated,
        health.UNDER_REPLICATED,
    ),
    _partition(
        "UnderMinIsr",
        "1 of a partition that refuses writes with acks=all; one 0 of its leader for all others.",
        "is_under_min_isr",
        lambda each: each.is_under_min_isr,
        health.UNDER_MIN_ISR,
    ),
    _partition(
        "AtMinIsr",
        "1 of a partition with as many in sync as min ISR, healthy ones too; one 0 of its leader for all others.",
        "min_isr_effective",
        _is_at_min_isr,
        health.AT_MIN_ISR,
    ),
    _log(
        "LogStartOffset",
        "log_start_offset",
        "Offset of the oldest record of a replica that leads; others are not asked for it.",
    ),
    _log("LogEndOffset", "log_end_offset", "Offset of the next record of a replica."),
    _log("Size", "size_bytes", "Size of a replica, in bytes."),
)


_RUNNING, _SHUTTING_DOWN = 3, 6  # of org.apache.kafka.metadata.BrokerState
_ISR_CHANGES: Final = "partition_changes.left_isr, partition_changes.joined_isr, partition_changes.cause"
UNKNOWN_CONTROLLER: Final = "controller"
"""The instance of a cluster's gauges while the id of its active controller is unknown."""


def _controller(cluster: ClusterSnapshot) -> str:
    controller = cluster.controller
    return UNKNOWN_CONTROLLER if controller is None else str(controller)


def _of_brokers(
    values: Callable[[ClusterSnapshot], Mapping[int, Number] | None],
) -> Callable[[ClusterSnapshot], Iterator[Sample]]:
    """Give every running broker its value, or 0; nothing while the values are unknown."""

    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        by_broker = values(cluster)
        if by_broker is not None:
            for number in running(cluster):
                yield (cluster.name, str(number)), by_broker.get(number, 0)

    return samples


def _led(
    is_counted: Callable[[PartitionState], object], state: str = health.PARTITIONS
) -> Callable[[ClusterSnapshot], Mapping[int, int] | None]:
    """Count the partitions in a state by leader; None while the state is unknown of all."""

    def count(cluster: ClusterSnapshot) -> Mapping[int, int] | None:
        # At min ISR may be every partition there is; in the other states are few, and those are kept apart.
        partitions = cluster.partitions() if state == health.AT_MIN_ISR else cluster.unsettled.values()
        if cluster.counts.in_state(state) is None:
            return None
        return Counter(each.leader for each in partitions if is_counted(each))

    return count


def _replica_manager(
    name: str, text: str, source: str, values: Callable[[ClusterSnapshot], Mapping[int, Number] | None]
) -> MBeanMetric:
    return derived(f"kafka.server:type=ReplicaManager,name={name}", text, source, _of_brokers(values))


def _isr_meter(name: str, change: str, place: int) -> MBeanMetric:
    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        for number in cluster.known_brokers():
            yield (cluster.name, str(number)), cluster.isr_meters.get(number, (0, 0))[place]

    text = (
        f"ISR {change} that the broker asked for as leader, since this exporter started, not those of the controller."
    )
    return derived(f"kafka.server:type=ReplicaManager,name={name}", text, _ISR_CHANGES, samples)


def _of_cluster(
    name: str, text: str, source: str, value: Callable[[ClusterSnapshot], Number | None], bean: str = "KafkaController"
) -> MBeanMetric:
    def samples(cluster: ClusterSnapshot) -> Iterator[Sample]:
        sample = value(cluster)
        if sample is not None:
            yield (cluster.name, _controller(cluster)), sample

    return derived(f"kafka.controller:type={bean},name={name}", text, source, samples, is_of_cluster=True)


def _messages_in(cluster: ClusterSnapshot) -> Iterator[Sample]:
    if cluster.samples.replica_logs is not None:
        for broker, count in cluster.samples.messages_in or ():
            yield (cluster.name, str(broker)), count


def _active_controller(cluster: ClusterSnapshot) -> Iterator[Sample]:
    active = cluster.controller
    if active is not None:
        for node in sorted({*(cluster.cluster.quorum_voters or ()), active}):
            yield (cluster.name, str(node)), int(node == active)


def _fenced(cluster: ClusterSnapshot, *, is_fenced: bool) -> int | None:
    """Count registered brokers; None while none was reported, or of one it is unknown."""
    fenced = [broker.is_fenced for broker in cluster.brokers.values() if cluster.is_registered(broker)]
    return None if None in fenced or not fenced else sum(each is is_fenced for each in fenced)


def _without_preferred_leader(cluster: ClusterSnapshot) -> int:
    """Count as ``PartitionRegistration.hasPreferredLeader``: one without a leader has not the preferred one."""
    return sum(cluster.counts.states.get(state, 0) for state in (health.OFF_PREFERRED_LEADER, health.OFFLINE))


def _broker_state(cluster: ClusterSnapshot) -> Mapping[int, int]:
    return {
        number: _SHUTTING_DOWN if cluster.brokers[number].is_shutting_down else _RUNNING for number in running(cluster)
    }


def _offline_directories(cluster: ClusterSnapshot) -> Iterable[DatedSample]:
    offline: dict[int, list[tuple[bool, int]]] = defaultdict(list)
    for row in cluster.samples.log_directories or ():
        offline[row.broker].append((not row.is_online, row.collected_at))
    for broker, rows in offline.items():
        yield (cluster.name, str(broker)), sum(is_offline for is_offline, _ in rows), max(at for _, at in rows)


JMX_METRICS: Final = (
    _replica_manager(
        "PartitionCount",
        "Partitions of which the broker has a replica.",
        "partition_state.replicas",
        lambda each: each.counts.hosted,
    ),
    _replica_manager(
        "LeaderCount", "Partitions that the broker leads.", "partition_state.leader", lambda each: each.counts.led
    ),
    _replica_manager(
        "UnderReplicatedPartitions",
        "Partitions that the broker leads and that have fewer replicas in sync than assigned.",
        "partition_state.is_under_replicated",
        _led(lambda each: each.is_under_replicated),
    ),
    _replica_manager(
        "UnderMinIsrPartitionCount",
        "Partitions that the broker leads and that refuse writes with acks=all.",
        "partition_state.is_under_min_isr",
        _led(lambda each: each.is_under_min_isr, health.UNDER_MIN_ISR),
    ),
    _replica_manager(
        "AtMinIsrPartitionCount",
        "Partitions that the broker leads and that have as many in sync as min ISR, healthy ones too (KIP-427).",
        "partition_state.min_isr_effective",
        _led(_is_at_min_isr, health.AT_MIN_ISR),
    ),
    _replica_manager(
        "ReassigningPartitions",
        "Partitions that the broker leads and that are being reassigned.",
        "partition_state.adding_replicas, partition_state.removing_replicas",
        _led(is_reassigned),
    ),
    _isr_meter("IsrShrinksPerSec", "shrinks", 0),
    _isr_meter("IsrExpandsPerSec", "expands", 1),
    derived(
        "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
        "Records appended to the logs that the broker leads, by the samples of their ends since this exporter started.",
        "replica_offsets.log_end_offset",
        _messages_in,
    ),
    derived(
        "kafka.server:type=KafkaServer,name=BrokerState",
        "3 while the broker runs, 6 in its controlled shutdown; absent while it is fenced.",
        "broker_state.is_fenced, broker_state.is_shutting_down",
        _of_brokers(_broker_state),
    ),
    derived(
        "kafka.controller:type=KafkaController,name=ActiveControllerCount",
        "1 of the active controller, 0 of the other voters; absent while unknown.",
        "cluster_state.controller, cluster_state.quorum_voters",
        _active_controller,
    ),
    _of_cluster(
        "OfflinePartitionsCount",
        "Partitions without a leader.",
        "partition_state.is_offline",
        lambda each: each.counts.in_state(health.OFFLINE),
    ),
    _of_cluster(
        "PreferredReplicaImbalanceCount",
        "Partitions that their preferred leader, the first of their replicas, does not lead.",
        "partition_state.is_off_preferred_leader, partition_state.is_offline",
        _without_preferred_leader,
    ),
    _of_cluster("GlobalTopicCount", "Topics.", "partition_state.topic_id", lambda each: len(each.topics)),
    _of_cluster(
        "GlobalPartitionCount",
        "Partitions.",
        "partition_state.partition",
        lambda each: each.counts.in_state(health.PARTITIONS),
    ),
    _of_cluster(
        "ActiveBrokerCount",
        "Registered brokers that are not fenced; absent while unknown.",
        "broker_state.is_fenced",
        lambda each: _fenced(each, is_fenced=False),
    ),
    _of_cluster(
        "FencedBrokerCount",
        "Registered brokers that are fenced; absent while unknown.",
        "broker_state.is_fenced",
        lambda each: _fenced(each, is_fenced=True),
    ),
    _of_cluster(
        "UncleanLeaderElectionsPerSec",
        "Leaders elected from outside ISR and ELR.",
        "partition_state.unclean_elections, cluster_state.expired_unclean_elections",
        lambda each: each.totals.unclean_elections,
        "ControllerStats",
    ),
    sampled(
        "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
        "Log directories of the broker that it cannot use.",
        "log_directories.is_online",
        _offline_directories,
    ),
    *PARTITION_MBEANS,
)
