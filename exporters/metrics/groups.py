"""The metrics of groups: state, members, lag, and records that were deleted before a group read them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import OWN_PREFIX, Number, SampledMetric
from exporters.read_model.cluster_samples import GroupOffsetsRow
from exporters.read_model.snapshot import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.metrics.metric import DatedSample
    from exporters.read_model.snapshot import ClusterSnapshot

_PREFIX: Final = f"{OWN_PREFIX}group_"
LABELS: Final = ("cluster", "group")


def members(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    """Count the members of each group, by group."""
    for row in cluster.samples.groups or ():
        if row.members is not None:
            yield (row.group,), row.members, row.collected_at


def per_partition(value: Callable[[GroupOffsetsRow], int | None]) -> Callable[[ClusterSnapshot], Iterator[DatedSample]]:
    """Return the values by group, topic and partition; one that is unknown is left out."""

    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        for row in cluster.samples.group_offsets or ():
            sample = value(row)
            if sample is not None:
                yield (row.group, row.topic, str(row.partition)), sample, row.collected_at

    return samples


def per_topic(
    value: Callable[[GroupOffsetsRow], Number | None],
    of_topic: Callable[[list[Number]], Number] = sum,
    *,
    of_known: bool = False,
) -> Callable[[ClusterSnapshot], Iterator[DatedSample]]:
    """Sum up the values by group and topic, or what else is asked for; without the value of one partition nothing.

    Only partitions with a commit count, and with ``of_known`` only those whose value is known.
    """

    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        values: dict[tuple[str, str], list[tuple[Number | None, int]]] = defaultdict(list)
        for row in cluster.samples.group_offsets or ():
            if row.committed_offset is not None:
                values[row.group, row.topic].append((value(row), row.collected_at))
        for key, dated_values in values.items():
            numbers = [each for each, _ in dated_values if each is not None]
            if len(numbers) == len(dated_values) or (of_known and numbers):
                yield key, of_topic(numbers), min(at for _, at in dated_values)

    return samples


def _of_cluster(
    samples: Callable[[ClusterSnapshot], Iterator[DatedSample]],
) -> Callable[[ClusterSnapshot], Iterator[DatedSample]]:
    """Add the cluster's name, which the names of kafka_exporter lack."""
    return lambda cluster: (((cluster.name, *labels), value, at) for labels, value, at in samples(cluster))


def _info(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    for row in cluster.samples.groups or ():
        labels = cluster.name, row.group, row.group_protocol, row.group_state, str(row.coordinator)
        yield labels, 1, row.collected_at


def _progress_ages(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    for row in cluster.samples.groups or ():
        if row.last_progress_at is not None:
            age = max(0, row.collected_at - row.last_progress_at) / SECOND
            yield (cluster.name, row.group), age, row.collected_at


GROUP_METRICS: Final = (
    SampledMetric(
        name=f"{_PREFIX}info",
        labels=(*LABELS, "protocol", "state", "coordinator"),
        help="State, coordinator and protocol of a group: classic, consumer, share, streams or spark; always 1.",
        source="groups.group_state, groups.group_protocol, groups.coordinator",
        samples=_info,
    ),
    SampledMetric(
        name=f"{_PREFIX}members",
        labels=LABELS,
        help="Members of a group; absent where its coordinator does not describe it.",
        source="groups.members",
        samples=_of_cluster(members),
    ),
    SampledMetric(
        name=f"{_PREFIX}progress_age_seconds",
        labels=LABELS,
        help="Time since a query of Spark last began or finished a batch; only of groups of this protocol.",
        unit="seconds",
        source="groups.last_progress_at",
        samples=_progress_ages,
    ),
    SampledMetric(
        name=f"{_PREFIX}lag_records",
        labels=(*LABELS, "topic", "partition"),
        help="Records up to the high watermark that a group has yet to read, never negative; absent while unknown.",
        unit="records",
        source="group_offsets.lag",
        samples=_of_cluster(per_partition(lambda row: row.lag)),
    ),
    SampledMetric(
        name=f"{_PREFIX}lag_seconds",
        labels=(*LABELS, "topic"),
        help="For how long a group could have read the oldest record of a topic that it has yet to read; "
        "absent while that is unknown of one of the partitions, as after an outage.",
        unit="seconds",
        source="group_offsets.lag_seconds",
        samples=_of_cluster(per_topic(lambda row: row.lag_seconds, max)),
    ),
    SampledMetric(
        name=f"{_PREFIX}lag_at_least_seconds",
        labels=(*LABELS, "topic"),
        help="The same of those partitions of which it is known: the lag of the topic is at least that.",
        unit="seconds",
        source="group_offsets.lag_seconds",
        samples=_of_cluster(per_topic(lambda row: row.lag_seconds, max, of_known=True)),
    ),
    SampledMetric(
        name=f"{_PREFIX}lost_records",
        labels=(*LABELS, "topic"),
        help="Records of a topic that were deleted before a group read them, as of its committed offsets.",
        unit="records",
        source="group_offsets.records_lost",
        samples=_of_cluster(per_topic(lambda row: row.records_lost)),
    ),
    SampledMetric(
        name=f"{_PREFIX}retention_used_ratio",
        labels=(*LABELS, "topic"),
        help="Share of the records kept of a partition that a group has yet to read, of the worst one of a topic: at 1 "
        "records are deleted before it reads them. Only of partitions of which records were deleted.",
        unit="ratio",
        source="group_offsets.lag, group_offsets.high_watermark, group_offsets.log_start_offset",
        samples=_of_cluster(per_topic(GroupOffsetsRow.retention_used, max, of_known=True)),
    ),
)
