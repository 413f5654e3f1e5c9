"""Conclusions from the sampled settings of a cluster: throttles left behind, and the levels of its features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.contracts.durability import (
    FeatureLevels,
    LeftThrottles,
    ThrottledReplicas,
    ThrottleRates,
    left_throttles,
)
from streaming.contracts.health import REASSIGNING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


# Sums over the partitions of a group; what is unknown of one of them is unknown of the group.
#
# In seconds the lag of a group is the largest one of its partitions; while that of one is unknown, it is at least the
# largest of the others.


def summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up rows of ``group_offsets`` of one group."""
    with_lag = [row for row in rows if row["lag"] is not None]
    worst = max(with_lag, key=lambda row: row["lag"], default=None)
    seconds = [row["lag_seconds"] for row in rows]
    at_least = max((each for each in seconds if each is not None), default=None)
    return {
        "partitions": len(rows),
        "lag": sum(row["lag"] for row in with_lag) if rows and len(with_lag) == len(rows) else None,
        "lag_seconds": None if None in seconds else at_least,
        "lag_seconds_at_least": at_least,
        "partitions_of_unknown_lag": len(rows) - len(with_lag),
        "records_lost": sum(row["records_lost"] or 0 for row in rows) if rows else None,
        "worst_partition": None if worst is None else f"{worst['topic']}-{worst['partition']}",
        "worst_lag": None if worst is None else worst["lag"],
    }
