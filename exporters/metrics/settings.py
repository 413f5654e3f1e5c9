"""The metrics of settings: topics that are not durable, throttles left behind, brokers of an older version."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import OWN_PREFIX, SampledMetric
from exporters.read_model.sampled_settings import feature_levels, throttles_left
from streaming.contracts.durability import WORST_FIRST, Weakness, versions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.metrics.metric import DatedSample, Number
    from exporters.read_model.cluster_samples import BrokerFeatureRow
    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.durability import LeftThrottles

# Replicas in one rack are no setting of their topic.
COUNTED: Final = tuple(weakness for weakness in WORST_FIRST if weakness is not Weakness.ONE_RACK)


def _weak(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    rows = cluster.samples.topic_settings
    if not rows:
        return
    counts: Counter[str] = Counter()
    for row in rows:
        topic = cluster.topics.get(row.topic_id)
        if topic is not None and not any(each.is_diskless for each in topic.partitions.values()):
            counts.update(row.weaknesses or ())
    at = max(row.collected_at for row in rows)
    for weakness in COUNTED:
        yield (cluster.name, weakness.value), counts[weakness.value], at


def _left(
    of_throttles: Callable[[LeftThrottles], Iterator[tuple[tuple[str, ...], Number]]],
) -> Callable[[ClusterSnapshot], Iterator[DatedSample]]:
    """Return what follows from the throttles that are left behind; unknown without the settings of both."""

    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        topics, brokers = cluster.samples.topic_settings, cluster.samples.broker_settings
        if topics and brokers:
            at = min(max(row.collected_at for row in topics), max(row.collected_at for row in brokers))
            for labels, value in of_throttles(throttles_left(cluster, topics, brokers)):
                yield (cluster.name, *labels), value, at

    return samples


def _of_features(
    samples: Callable[[tuple[BrokerFeatureRow, ...]], Iterator[tuple[tuple[str, ...], Number]]],
) -> Callable[[ClusterSnapshot], Iterator[DatedSample]]:
    def of_cluster(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        rows = cluster.samples.broker_features
        if rows:
            at = max(row.collected_at for row in rows)
            for labels, value in samples(rows):
                yield (cluster.name, *labels), value, at

    return of_cluster


def _older(rows: tuple[BrokerFeatureRow, ...]) -> Iterator[tuple[tuple[str, ...], Number]]:
    mixed = versions_of(feature_levels(rows)).mixed
    yield (), len({broker for brokers in mixed.values() for broker in brokers})


def _unfinished(rows: tuple[BrokerFeatureRow, ...]) -> Iterator[tuple[tuple[str, ...], Number]]:
    yield (), int(versions_of(feature_levels(rows)).unused is not None)


def _levels(rows: tuple[BrokerFeatureRow, ...]) -> Iterator[tuple[tuple[str, ...], Number]]:
    for name, levels in sorted(feature_levels(rows).items()):
        yield (name,), levels.finalized


def _roles(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    for row in cluster.samples.topic_settings or ():
        if row.role is not None and row.topic_id in cluster.topics:
            yield (cluster.name, row.topic, row.role), 1, row.collected_at


_LEFT: Final = "though nothing is being reassigned"
_THROTTLES: Final = (
    "topic_settings.leader_throttled_replicas, topic_settings.follower_throttled_replicas, "
    "broker_settings.leader_throttled_rate, broker_settings.follower_throttled_rate"
)
SETTINGS_METRICS: Final = (
    SampledMetric(
        name=f"{OWN_PREFIX}cluster_weak_topics",
        labels=("cluster", "weakness"),
        help="Topics whose settings risk records or availability, by weakness; isrwatch settings names them.",
        source="topic_settings.weaknesses",
        is_of_topics=True,
        samples=_weak,
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}topic_role_info",
        labels=("cluster", "topic", "role"),
        help="Purpose of an internal topic, such as consumer_offsets; always 1, for joins. "
        "Of Kafka Connect and Kafka Streams a guess by its name.",
        source="topic_settings.role",
        is_of_topics=True,
        samples=_roles,
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}cluster_left_throttles",
        labels=("cluster",),
        help=f"Topics and brokers with a throttle of replication, {_LEFT}.",
        source=_THROTTLES,
        is_of_topics=True,
        samples=_left(lambda left: iter((((), len(left.topics) + len(left.brokers)),))),
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}topic_left_throttle_info",
        labels=("cluster", "topic"),
        help=f"A topic that lists throttled replicas, {_LEFT}; always 1.",
        source=_THROTTLES,
        is_of_topics=True,
        samples=_left(lambda left: (((topic,), 1) for topic in left.topics)),
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}broker_left_throttle_info",
        labels=("cluster", "broker"),
        help=f"A broker with a throttled rate of replication, {_LEFT}; always 1.",
        source=_THROTTLES,
        is_of_topics=True,
        samples=_left(lambda left: (((str(broker),), 1) for broker in left.brokers)),
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}cluster_older_version_brokers",
        labels=("cluster",),
        help="Brokers that support less of a feature than another broker: they run an older version of Kafka.",
        source="broker_features.supported_level",
        samples=_of_features(_older),
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}cluster_unfinished_upgrade",
        labels=("cluster",),
        help="1 while every broker supports a newer metadata.version than the cluster uses, else 0.",
        source="broker_features.supported_level, broker_features.finalized_level",
        samples=_of_features(_unfinished),
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}cluster_feature_level",
        labels=("cluster", "feature"),
        help="The level of a feature that the cluster uses, such as metadata.version; 0 is off.",
        source="broker_features.finalized_level",
        samples=_of_features(_levels),
    ),
)
