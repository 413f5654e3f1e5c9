"""The metrics of followers that are behind, of slow brokers, of the size of topics, and of log directories."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import OWN_PREFIX, Freshness, SampledMetric, flag
from exporters.read_model.cluster_samples import bytes_to_go, is_reassigned
from exporters.read_model.snapshot import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.metrics.metric import DatedSample, Number
    from exporters.read_model.cluster_samples import BrokerSpeedRow, LaggingReplica, LogDirectoryRow
    from exporters.read_model.snapshot import ClusterSnapshot

REPLICA_LABELS: Final = ("cluster", "topic", "partition", "broker")
BROKER_LABELS: Final = ("cluster", "broker")
DIRECTORY_LABELS: Final = ("cluster", "broker", "log_dir")


def _lagging(cluster: ClusterSnapshot) -> Iterator[LaggingReplica]:
    """Leave out the replicas of topics that were deleted since."""
    return (each for each in cluster.samples.lagging_replicas or () if each.topic_id in cluster.topics)


def _per_replica(
    value: Callable[[LaggingReplica], Number | None],
) -> Callable[[ClusterSnapshot], Iterator[DatedSample]]:
    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        for each in _lagging(cluster):
            sample = value(each)
            if sample is not None:
                labels = cluster.name, each.topic, str(each.partition), str(each.broker)
                yield labels, sample, each.collected_at

    return samples


def _per_broker(value: Callable[[list[int]], int]) -> Callable[[ClusterSnapshot], Iterator[DatedSample]]:
    """Return what follows from the lags of all lagging replicas of a broker; it may have none."""

    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        lags: dict[int, list[int]] = defaultdict(list)
        for each in _lagging(cluster):
            lags[each.broker].append(each.lag)
        for broker, at in cluster.samples.broker_offsets_at or ():
            yield (cluster.name, str(broker)), value(lags[broker]), at

    return samples


def _bytes_to_go(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    """Add up what all reassignments have yet to copy; nothing while that is unknown of one of them."""
    logs, at = cluster.samples.replica_logs, cluster.offsets_at
    if logs is None or at is None:
        return
    moving = list(filter(is_reassigned, cluster.unsettled.values()))
    sizes: dict[tuple[str, int], dict[int, int | None]] = defaultdict(dict)
    if moving:
        import pyarrow as pa  # noqa: PLC0415 - who reads the catalogue only, as the dashboards do, starts without Arrow
        import pyarrow.compute as pc  # noqa: PLC0415 - as above

        for row in logs.filter(pc.is_in(logs["topic_id"], pa.array({each.topic_id for each in moving}))).to_pylist():
            sizes[row["topic_id"], row["partition"]][row["broker"]] = row["size_bytes"]
            at = min(at, row["collected_at"])
    amounts = [bytes_to_go(each, sizes[each.topic_id, each.partition]) for each in moving]
    if None not in amounts:
        yield (cluster.name,), sum(filter(None, amounts)), at


def _sizes(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    for each in cluster.samples.topic_sizes or ():
        if each.topic_id in cluster.topics:
            yield (cluster.name, each.topic), each.size_bytes, each.collected_at


def _speed(
    name: str, text: str, column: str, value: Callable[[BrokerSpeedRow], Number | None], unit: str = ""
) -> SampledMetric:
    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        for row in cluster.samples.broker_speed or ():
            sample = value(row)
            if sample is not None:
                yield (cluster.name, str(row.broker)), sample, row.collected_at

    return SampledMetric(
        name=f"{OWN_PREFIX}broker_{name}",
        labels=BROKER_LABELS,
        help=text,
        unit=unit,
        source=f"broker_speed.{column}",
        samples=samples,
    )


def _directory(
    name: str, text: str, column: str, value: Callable[[LogDirectoryRow], Number | None], unit: str = ""
) -> SampledMetric:
    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        for row in cluster.samples.log_directories or ():
            sample = value(row)
            if sample is not None:
                yield (cluster.name, str(row.broker), row.log_dir), sample, row.collected_at

    return SampledMetric(
        name=f"{OWN_PREFIX}log_directory_{name}",
        labels=DIRECTORY_LABELS,
        help=text,
        unit=unit,
        source=f"log_directories.{column}",
        samples=samples,
    )


_BEHIND: Final = "only of a replica that has not caught up with its leader between two samples"
REPLICA_METRICS: Final = (
    SampledMetric(
        name=f"{OWN_PREFIX}replica_lag_records",
        labels=REPLICA_LABELS,
        help=f"Records that its leader has and the replica has not; {_BEHIND}.",
        unit="records",
        source="replica_offsets.lag",
        is_of_topics=True,
        is_detail=True,
        samples=_per_replica(lambda each: each.lag),
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}replica_behind_seconds",
        labels=REPLICA_LABELS,
        help=f"Time from the first sample since which the replica has not caught up to the newest; {_BEHIND}.",
        unit="seconds",
        source="replica_offsets.behind_since, replica_offsets.collected_at",
        is_of_topics=True,
        is_detail=True,
        samples=_per_replica(lambda each: (each.collected_at - each.behind_since) / SECOND),
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}replica_until_caught_up_seconds",
        labels=REPLICA_LABELS,
        help="Time until a replica that is behind has caught up, at its present pace; absent unless its lag shrinks.",
        unit="seconds",
        source="replica_offsets.seconds_until_caught_up",
        is_of_topics=True,
        is_detail=True,
        samples=_per_replica(lambda each: each.seconds_until_caught_up),
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}broker_lagging_replicas",
        labels=BROKER_LABELS,
        help="Replicas of the broker that have not caught up with their leaders between two samples.",
        source="replica_offsets.behind_since",
        is_of_topics=True,
        samples=_per_broker(len),
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}broker_max_replica_lag_records",
        labels=BROKER_LABELS,
        help="The largest lag of those replicas; 0 without any.",
        unit="records",
        source="replica_offsets.lag",
        is_of_topics=True,
        samples=_per_broker(lambda lags: max(lags, default=0)),
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}topic_size_bytes",
        labels=("cluster", "topic"),
        help="Size of the logs of all replicas of a topic, without brokers that do not answer.",
        unit="bytes",
        source="replica_offsets.size_bytes",
        is_of_topics=True,
        samples=_sizes,
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}cluster_reassignment_remaining_bytes",
        labels=("cluster",),
        help="Bytes that the replicas which reassignments add have yet to copy, by the sizes of logs; absent while "
        "that of one of them, or of its leader, is unknown.",
        unit="bytes",
        source="replica_offsets.size_bytes, partition_state.adding_replicas, partition_state.isr",
        freshness=Freshness.OFFSETS,
        is_of_topics=True,
        samples=_bytes_to_go,
    ),
    _directory(
        "online", "1 while the broker can use its log directory, else 0.", "is_online", lambda row: int(row.is_online)
    ),
    _directory(
        "replica_bytes",
        "Size of the replicas in the log directory.",
        "replica_bytes",
        lambda row: row.replica_bytes,
        "bytes",
    ),
    _directory(
        "total_bytes",
        "Size of the volume of the log directory; absent before Kafka 3.3 (KIP-827).",
        "total_bytes",
        lambda row: row.total_bytes,
        "bytes",
    ),
    _directory(
        "usable_bytes",
        "Free bytes of the volume of the log directory; absent before Kafka 3.3 (KIP-827).",
        "usable_bytes",
        lambda row: row.usable_bytes,
        "bytes",
    ),
    _directory(
        "cordoned",
        "1 while no new replica is put into the log directory (cordoned.log.dirs); absent before Kafka 4.3 (KIP-1066).",
        "is_cordoned",
        lambda row: None if row.is_cordoned is None else int(row.is_cordoned),
    ),
    _directory(
        "growth_bytes_per_second",
        "By how much the used bytes of the volume grow, over about 20 minutes; negative while they shrink.",
        "bytes_per_second",
        lambda row: row.bytes_per_second,
        "bytes_per_second",
    ),
    _directory(
        "until_full_seconds",
        "Time until the volume of the log directory is full, at this pace; absent unless it fills.",
        "seconds_until_full",
        lambda row: row.seconds_until_full,
        "seconds",
    ),
    _speed(
        "slow",
        "1 while the broker is slower than it was and than its peers, else 0; absent while unknown.",
        "is_slow",
        lambda row: flag(row.is_slow),
    ),
    _speed(
        "overloaded",
        "1 while so many brokers are slower than before that none of them is to blame, else 0; absent while unknown.",
        "is_overloaded",
        lambda row: flag(row.is_overloaded),
    ),
    _speed(
        "response_seconds",
        "Median time of a request to the broker that touches no log.",
        "response_micros",
        lambda row: row.response_micros / SECOND,
        "seconds",
    ),
    _speed(
        "append_seconds",
        "Mean time of the broker's own part of a produce request, by its metrics agent; absent while unknown.",
        "append_micros",
        lambda row: None if row.append_micros is None else row.append_micros / SECOND,
        "seconds",
    ),
)
