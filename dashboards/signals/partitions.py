"""Partitions, replicas and topics: series of single ones that are not healthy, and counts by topic."""

from __future__ import annotations

from typing import Final

from dashboards.promql import Signal, Unit
from dashboards.signals.derived import signal

OFFLINE: Final = signal("kafka_replication_partition_offline")
UNDER_REPLICATED: Final = signal("kafka_replication_partition_under_replicated")
LEADER: Final = signal("kafka_replication_partition_leader", "Leader", unit=Unit.BARE)
IN_SYNC: Final = signal("kafka_replication_partition_in_sync_replicas", "In sync")
REPLICAS: Final = signal("kafka_replication_partition_replicas", "Replicas")
MIN_ISR: Final = signal("kafka_replication_partition_min_in_sync_replicas", "Min ISR")
UNDER_REPLICATED_SINCE: Final = signal("kafka_replication_partition_under_replicated_since_timestamp_seconds")
REPLICA_IN_SYNC: Final = signal("kafka_replication_replica_isr_member")
REPLICA_IN_ELR: Final = signal("kafka_replication_replica_elr_member", "May lead")
OFFLINE_SINCE: Final = signal("kafka_replication_partition_offline_since_timestamp_seconds", "Offline for")
UNDER_MIN_ISR_SINCE: Final = signal(
    "kafka_replication_partition_under_min_isr_since_timestamp_seconds", "Rejects writes for"
)
REPLICA_LAG: Final = signal("kafka_replication_replica_lag_records", "Lag, records")
REPLICA_BEHIND: Final = signal("kafka_replication_replica_behind_seconds", "Behind for")
REPLICA_UNTIL_CAUGHT_UP: Final = signal("kafka_replication_replica_until_caught_up_seconds", "Caught up in")


# Topics: partitions in each state of health.


TOPIC_OFFLINE: Final = signal("kafka_replication_topic_offline_partitions", "Offline")
TOPIC_UNDER_MIN_ISR: Final = signal(
    "kafka_replication_topic_under_min_isr_partitions",
    "Under min ISR",
    "Partitions of the topic that reject writes with acks=all.",
)
TOPIC_AT_MIN_ISR: Final = signal("kafka_replication_topic_at_min_isr_partitions", "At min ISR")
TOPIC_UNDER_REPLICATED: Final = signal(
    "kafka_replication_topic_under_replicated_partitions",
    "Under-replicated",
    "Partitions of the topic whose ISR lacks replicas.",
)
TOPIC_REASSIGNING: Final = signal(
    "kafka_replication_topic_reassigning_partitions",
    "Being reassigned",
    "Partitions of each topic with a reassignment that is not complete; isrwatch reassignments lists them.",
)
TOPIC_ISR_SHRINKS: Final = signal(
    "kafka_replication_topic_isr_shrinks_total",
    "ISR shrinks",
    (
        "ISR shrinks of the topics that have most. One topic alone: its load, its size of batches, or its throttle; "
        "all alike: a broker that they share."
    ),
)
TOPIC_LEADER_CHANGES: Final = signal("kafka_replication_topic_leader_changes_total", "Leader changes")
TOPIC_UNCLEAN_ELECTIONS: Final = signal("kafka_replication_topic_unclean_elections_total", "Unclean elections")
TOPIC_UNDER_MIN_ISR_SECONDS: Final = signal("kafka_replication_topic_under_min_isr_seconds_total")
TOPIC_SIZE: Final = signal("kafka_replication_topic_size_bytes", "Size")
TOPIC_ROLE: Final = signal("kafka_replication_topic_role_info")
HIGH_WATERMARK: Final = Signal(
    "High watermark",
    "topic_partition_current_offset",
    "Offset up to which consumers can read a partition, under the name that kafka_exporter gave it.",
    labels=("topic", "partition"),
    prefix="kafka_",
)
