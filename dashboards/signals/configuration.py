"""Of settings and versions: topics that are not durable, throttles left behind, upgrades that are not finished."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal
from dashboards.signals.labels import BROKER, CLUSTER, TOPIC

_cluster = partial(Signal, labels=CLUSTER)

WEAK_TOPICS: Final = Signal(
    name="Topics that are not durable",
    meaning="Topics whose settings risk records or availability, by weakness.",
    metric="cluster_weak_topics",
    labels=(*CLUSTER, "weakness"),
)
LEFT_THROTTLES: Final = _cluster(
    "Throttles left behind",
    "cluster_left_throttles",
    "Topics and brokers with a throttle of replication, though nothing is being reassigned.",
)
TOPIC_LEFT_THROTTLE: Final = Signal(
    name="Topic with a throttle",
    meaning="The topic lists throttled replicas, though nothing is being reassigned.",
    metric="topic_left_throttle_info",
    labels=TOPIC,
)
BROKER_LEFT_THROTTLE: Final = Signal(
    name="Broker with a throttle",
    meaning="The broker throttles replication, though nothing is being reassigned.",
    metric="broker_left_throttle_info",
    labels=BROKER,
)
OLDER_BROKERS: Final = _cluster(
    "Brokers of an older version",
    "cluster_older_version_brokers",
    "Brokers that support less of a feature than another broker.",
)
UNFINISHED_UPGRADE: Final = _cluster(
    "Upgrade not finished",
    "cluster_unfinished_upgrade",
    "1 while every broker supports a newer metadata.version than the cluster uses.",
)
