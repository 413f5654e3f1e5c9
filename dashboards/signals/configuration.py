"""Settings and versions: topics that are not durable, throttles left behind, unfinished upgrades."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal
from dashboards.signals.labels import BROKER, CLUSTER, TOPIC

_cluster = partial(Signal, labels=CLUSTER)

WEAK_TOPICS: Final = Signal(
    name="Topics with weak settings",
    meaning="Topics whose settings risk records or availability, by weakness; isrwatch state --settings names them.",
    metric="cluster_weak_topics",
    labels=(*CLUSTER, "weakness"),
)
LEFT_THROTTLES: Final = _cluster(
    "Throttles left behind",
    "cluster_left_throttles",
    (
        "Topics and brokers whose replication is throttled though nothing is being reassigned: their followers cannot "
        "catch up. isrwatch state --settings names them and how to remove the throttle."
    ),
)
UNFINISHED_UPGRADE: Final = _cluster(
    "Upgrade not finished",
    "cluster_unfinished_upgrade",
    (
        "1 while every broker supports a newer metadata.version than the cluster uses: kafka-features upgrade was not "
        "run after the last broker. What the newer version offers is off until then."
    ),
)
OLDER_BROKERS: Final = _cluster(
    "Brokers of an older version",
    "cluster_older_version_brokers",
    "Brokers that run an older version of Kafka than another broker. Normal during an upgrade; finish it soon.",
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
