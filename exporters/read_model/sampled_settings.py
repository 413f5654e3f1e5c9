"""Conclusions from the sampled settings of a cluster: throttles left behind, and the levels of its features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.durability import (
    FeatureLevels,
    LeftThrottles,
    ThrottledReplicas,
    ThrottleRates,
    left_throttles,
)
from streaming.contracts.health import REASSIGNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporters.read_model.cluster_samples import BrokerFeatureRow, BrokerSettingsRow, TopicSettingsRow
    from exporters.read_model.snapshot import ClusterSnapshot


def throttles_left(
    cluster: ClusterSnapshot, topics: Sequence[TopicSettingsRow], brokers: Sequence[BrokerSettingsRow]
) -> LeftThrottles:
    """Return the throttles that are left behind, of the topics that still exist."""
    replicas = {
        row.topic: ThrottledReplicas(row.leader_throttled_replicas, row.follower_throttled_replicas)
        for row in topics
        if row.topic_id in cluster.topics
    }
    rates = {row.broker: ThrottleRates(row.leader_throttled_rate, row.follower_throttled_rate) for row in brokers}
    return left_throttles(replicas, rates, reassigning=cluster.counts.in_state(REASSIGNING) or 0)


def feature_levels(rows: Sequence[BrokerFeatureRow]) -> dict[str, FeatureLevels]:
    """Return the levels of each feature; a broker that does not name one supports level 0 of it."""
    brokers = {row.broker for row in rows}
    features: dict[str, FeatureLevels] = {}
    for row in rows:
        supported = features[row.feature].supported if row.feature in features else dict.fromkeys(brokers, 0)
        features[row.feature] = FeatureLevels(row.finalized_level, {**supported, row.broker: row.supported_level})
    return features
