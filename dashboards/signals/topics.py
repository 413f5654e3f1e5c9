"""Topics: partitions in each state of health."""

from __future__ import annotations

from typing import Final

from dashboards.signals.derived import signal

OFFLINE: Final = signal("kafka_replication_topic_offline_partitions", "Offline")
UNDER_MIN_ISR: Final = signal(
    "kafka_replication_topic_under_min_isr_partitions",
    "Under min ISR",
    "Partitions of the topic that refuse writes with acks=all.",
)
AT_MIN_ISR: Final = signal("kafka_replication_topic_at_min_isr_partitions", "At min ISR")
UNDER_REPLICATED: Final = signal(
    "kafka_replication_topic_under_replicated_partitions",
    "Under-replicated",
    "Partitions of the topic whose ISR lacks replicas.",
)
REASSIGNING: Final = signal(
    "kafka_replication_topic_reassigning_partitions",
    "Being reassigned",
    "Partitions of each topic with a reassignment that is not complete; isrwatch state --reassignments lists them.",
)
ISR_SHRINKS: Final = signal(
    "kafka_replication_topic_isr_shrinks_total",
    "ISR shrinks",
    (
        "ISR shrinks of the topics that have most. One topic alone: its load, its size of batches, or its throttle; "
        "all alike: a broker that they share."
    ),
)
LEADER_CHANGES: Final = signal("kafka_replication_topic_leader_changes_total", "Leader changes")
UNCLEAN_ELECTIONS: Final = signal("kafka_replication_topic_unclean_elections_total", "Unclean elections")
UNDER_MIN_ISR_SECONDS: Final = signal("kafka_replication_topic_under_min_isr_seconds_total")
SIZE: Final = signal("kafka_replication_topic_size_bytes", "Size")
