"""Settings and versions: topics that are not durable, throttles left behind, unfinished upgrades."""

from __future__ import annotations

from typing import Final

from dashboards.signals.derived import signal

WEAK_TOPICS: Final = signal("kafka_replication_cluster_weak_topics")
LEFT_THROTTLES: Final = signal(
    "kafka_replication_cluster_left_throttles",
    "Throttles left behind",
    (
        "Topics and brokers whose replication is throttled though nothing is being reassigned: their followers cannot "
        "catch up. isrwatch state --settings names them and how to remove the throttle."
    ),
)
UNFINISHED_UPGRADE: Final = signal(
    "kafka_replication_cluster_unfinished_upgrade",
    "Upgrade not finished",
    (
        "1 while every broker supports a newer metadata.version than the cluster uses: kafka-features upgrade was not "
        "run after the last broker. What the newer version offers is off until then."
    ),
)
OLDER_BROKERS: Final = signal(
    "kafka_replication_cluster_older_version_brokers",
    "Brokers of an older version",
    "Brokers that run an older version of Kafka than another broker. Normal during an upgrade; finish it soon.",
)
TOPIC_LEFT_THROTTLE: Final = signal("kafka_replication_topic_left_throttle_info")
BROKER_LEFT_THROTTLE: Final = signal("kafka_replication_broker_left_throttle_info")
