"""The metrics of groups: state, members, lag, who reads what, and where a group is stuck, beyond the end or losing."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import OWN_PREFIX, Number, SampledMetric
from exporters.read_model.group_sums import is_unread
from exporters.read_model.snapshot import SECOND
from streaming.contracts.group_readers import (
    PartitionReader,
    has_offset,
    is_losing,
    is_stuck,
    reader_of,
    retention_used,
)
from streaming.contracts.identifiers import NO_BROKER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.metrics.metric import DatedSample
    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.group_readers import GroupOffsetsRow

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

    Only partitions with an offset of the group count, and with ``of_known`` only those whose value is known.
    """

    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        values: dict[tuple[str, str], list[tuple[Number | None, int]]] = defaultdict(list)
        for row in cluster.samples.group_offsets or ():
            if has_offset(row):
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


def _unread(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    """Count the groups of each coordinator whose newest answer lacks something of them."""
    counts, newest = Counter[int](), dict[int, int]()
    for row in cluster.samples.groups or ():
        if row.coordinator != NO_BROKER:
            at = row.collected_at if row.kept_at is None else row.kept_at
            newest[row.coordinator] = max(at, newest.get(row.coordinator, at))
            counts[row.coordinator] += is_unread(row.is_unread, row.kept_at)
    for coordinator, at in newest.items():
        yield (cluster.name, str(coordinator)), counts[coordinator], at


OWNERS: Final = 10
"""So many client ids of a group and topic have series of their own, those that own most; the others share one."""


def _readers(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    """Count the partitions of a topic by who reads them for a group."""
    partitions = {topic.topic: len(topic.partitions) for topic in cluster.topics.values()}
    counts: dict[tuple[str, str], Counter[PartitionReader]] = defaultdict(Counter)
    oldest: dict[tuple[str, str], int] = {}
    for row in cluster.samples.group_offsets or ():
        key = row.group, row.topic
        counts[key][reader_of(row)] += 1
        oldest[key] = min(row.collected_at, oldest.get(key, row.collected_at))
    for key, count in counts.items():
        count[PartitionReader.NEVER] = max(0, partitions.get(key[1], 0) - count.total())
        for reader in filter(count.get, PartitionReader):
            yield (cluster.name, *key, reader), count[reader], oldest[key]


def _owners(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    """Count the partitions of a topic by the client id of their owner in a group."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    oldest: dict[tuple[str, str], int] = {}
    for row in cluster.samples.group_offsets or ():
        if row.member is not None:
            key = row.group, row.topic
            counts[key][row.member] += 1
            oldest[key] = min(row.collected_at, oldest.get(key, row.collected_at))
    for key, count in counts.items():
        in_order = sorted(count.items(), key=lambda each: (-each[1], each[0]))
        owners = Counter(dict(in_order[:OWNERS]))
        owners[""] += sum(number for _, number in in_order[OWNERS:])
        for owner in filter(owners.get, owners):
            yield (cluster.name, *key, owner), owners[owner], oldest[key]


def _seconds(at: int | None) -> float | None:
    return None if at is None else at / SECOND


def _of_topic(
    name: str, text: str, source: str, samples: Callable[[ClusterSnapshot], Iterator[DatedSample]], unit: str = ""
) -> SampledMetric:
    """Return a metric with a series for each group and topic."""
    return SampledMetric(
        name=f"{_PREFIX}{name}",
        labels=(*LABELS, "topic"),
        help=text,
        unit=unit,
        source=", ".join(f"group_offsets.{column}" for column in source.split()),
        samples=_of_cluster(samples),
    )


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
        name=f"{OWN_PREFIX}broker_unread_groups",
        labels=("cluster", "broker"),
        help="Groups whose coordinator did not say in its last answer what they have committed: it was late, refused, "
        "or has just started and does not list them any more. Their lag is an older one, and soon unknown, as that of "
        "share groups before Kafka 4.2.",
        source="groups.is_unread, groups.kept_at",
        samples=_unread,
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
        help="Offsets up to the high watermark that a group has not passed, never negative; absent while unknown. "
        "Where there are transactions or compaction fewer of them are records. Deleted ones do not count: "
        "kafka-consumer-groups counts them, and is negative beyond the end.",
        unit="records",
        source="group_offsets.lag",
        samples=_of_cluster(per_partition(lambda row: row.lag)),
    ),
    _of_topic(
        "lag_seconds",
        "For how long a group could have read the oldest offset of a topic that it has not passed; absent while that "
        "is unknown of one of the partitions, as after an outage.",
        "lag_seconds",
        per_topic(lambda row: row.lag_seconds, max),
        "seconds",
    ),
    _of_topic(
        "lag_at_least_seconds",
        "The same, of the partitions where it is known: the lag of the topic is at least that.",
        "lag_seconds",
        per_topic(lambda row: row.lag_seconds, max, of_known=True),
        "seconds",
    ),
    _of_topic(
        "beyond_offsets",
        "Offsets by which a group stands beyond the end of the partitions of a topic, as after an unclean election: it "
        "skips as many records, or is reset. 0 where it does not.",
        "beyond",
        per_topic(lambda row: row.beyond, of_known=True),
    ),
    _of_topic(
        "lost_records",
        "Offsets of a topic that were deleted before a group committed them, added up since it is watched; those of "
        "before included. It rises once for each loss; what the group has passed by its next sample counts as read.",
        "records_lost",
        per_topic(lambda row: row.records_lost),
        "records",
    ),
    _of_topic(
        "last_loss_timestamp_seconds",
        "When the last of them was lost; absent where none was since the group is watched.",
        "lost_at",
        per_topic(lambda row: _seconds(row.lost_at), max, of_known=True),
        "seconds",
    ),
    _of_topic(
        "losing_partitions",
        "Partitions of a topic that are read, of which records were deleted in the last 15 minutes that the group had "
        "not committed.",
        "lost_at",
        per_topic(is_losing, of_known=True),
    ),
    _of_topic(
        "stuck_partitions",
        "Partitions of a topic that are read, and whose committed offset has stood still for 15 minutes, and for twice "
        "as long as before its last two commits, before something that is proven to be readable. Offsets that may be "
        "markers of transactions, or aborted, do not count.",
        "standing_since usual_wait standing_rises rests is_transactional readable_at stable_lag owned_at",
        per_topic(is_stuck, of_known=True),
    ),
    _of_topic(
        "last_commit_timestamp_seconds",
        "When a committed offset of a group in a topic was last seen to move forward; absent where none was yet.",
        "committed_at",
        per_topic(lambda row: _seconds(row.committed_at), max, of_known=True),
        "seconds",
    ),
    _of_topic(
        "retention_used_ratio",
        "Share of what is kept of a partition that its reader has yet to read, of the worst one of a topic: at 1 "
        "records are deleted before it reads them. Only of partitions that are read, of which records were deleted, "
        "and not because they were committed, as in repartition topics.",
        "lag high_watermark log_start_offset",
        per_topic(retention_used, max, of_known=True),
        "ratio",
    ),
    SampledMetric(
        name=f"{_PREFIX}partitions",
        labels=(*LABELS, "topic", "reader"),
        help="Partitions of a topic by who reads them for a group: owner, a member; commits, a consumer without "
        "membership, whose offset moved twice in two hours; uncommitted, a member that has never committed; none, "
        "something was committed; never, nothing was.",
        source=", ".join(
            f"group_offsets.{name}" for name in ("member", "owned_at", "committed_at", "committed_before")
        ),
        samples=_readers,
        is_of_topics=True,
    ),
    SampledMetric(
        name=f"{_PREFIX}owned_partitions",
        labels=(*LABELS, "topic", "owner"),
        help=f"Partitions of a topic by the client id of the member that owns them; beyond {OWNERS} of them the rest "
        "has an empty one.",
        source="group_offsets.member",
        samples=_owners,
    ),
)
