"""Clusters: partitions in each state of health, brokers, the age of the data."""

from __future__ import annotations

from typing import Final

from dashboards.promql import Unit
from dashboards.signals.derived import signal

DATA_AGE: Final = signal(
    "kafka_replication_cluster_state_age_seconds",
    "Data age",
    (
        "Seconds since the newest observation of the cluster. Above 60 s all state on this dashboard disappears, "
        "instead of looking healthy. Then open the board of the monitor itself: the source whose age grows has failed."
    ),
    copies="min",
)
OFFLINE: Final = signal(
    "kafka_replication_cluster_offline_partitions",
    "Offline partitions",
    (
        "Partitions without a leader: neither reads nor writes. Data may be lost if the last in-sync replica does not "
        "return. Restore that broker first; an unclean election discards records that only it has."
    ),
)
UNDER_MIN_ISR: Final = signal(
    "kafka_replication_cluster_under_min_isr_partitions",
    "Under min ISR",
    (
        "Partitions with fewer in-sync replicas than min.insync.replicas: producers with acks=all are refused. "
        "Restore the brokers that left the ISR (see below); do not lower min.insync.replicas to silence the alert."
    ),
)
AT_MIN_ISR: Final = signal("kafka_replication_cluster_at_min_isr_partitions")
UNDER_REPLICATED: Final = signal(
    "kafka_replication_cluster_under_replicated_partitions",
    "Under-replicated",
    (
        "Partitions with fewer replicas in sync than assigned, not counting replicas that a reassignment adds. Normal "
        "while a broker restarts. If it lasts, find the broker that is missing from the ISRs."
    ),
)
UNKNOWN_MIN_ISR: Final = signal(
    "kafka_replication_cluster_unknown_min_isr_partitions",
    "Min ISR unknown",
    (
        "Partitions whose min.insync.replicas is unknown: they can be under min ISR without being counted. Should be "
        "0; if not, grant the collector DescribeConfigs on topics."
    ),
)
OFF_PREFERRED_LEADER: Final = signal(
    "kafka_replication_cluster_off_preferred_leader_partitions",
    meaning=(
        "Partitions not led by the first of their replicas. No risk to data, but load is uneven. "
        "Kafka rebalances leaders every five minutes unless auto.leader.rebalance.enable is off."
    ),
)
REASSIGNING: Final = signal(
    "kafka_replication_cluster_reassigning_partitions",
    "Being reassigned",
    "Partitions with a reassignment that is not complete. If the number stands still for hours, it is stuck.",
)
LEFT_TO_COPY: Final = signal(
    "kafka_replication_cluster_reassignment_remaining_bytes",
    "Left to copy",
    (
        "Bytes that the replicas which reassignments add have yet to copy. A line that does not fall: a throttle below "
        "the rate of new records, or a new replica whose broker is down. Nothing is shown while a size is unknown."
    ),
)
BROKERS: Final = signal(
    "kafka_replication_cluster_brokers",
    "Registered brokers",
    "Brokers registered with the controller. A missing one was unregistered, or has never started.",
)
FENCED_BROKERS: Final = signal(
    "kafka_replication_cluster_fenced_brokers",
    "Fenced brokers",
    (
        "Brokers whose session with the controller expired, or that are starting: they lead nothing and are in no ISR. "
        "One during a restart is normal. If it lasts, the process is down, hung or cut off from the controllers."
    ),
)
INFO: Final = signal("kafka_replication_cluster_info")
PARTITIONS: Final = signal("kafka_replication_cluster_partitions", "Partitions")
DISKLESS: Final = signal(
    "kafka_replication_cluster_diskless_partitions",
    "Diskless partitions",
    "Partitions of diskless topics (KIP-1150): their ISR means nothing, and no count of unhealthy ones has them.",
)
UNHEALTHY: Final = signal(
    "kafka_replication_cluster_unhealthy",
    meaning=(
        "Why the cluster is not healthy, by reason, as isrwatch health says it: how many partitions, brokers or other "
        "things. Without a reason it is healthy."
    ),
)
FEATURE_LEVEL: Final = signal(
    "kafka_replication_cluster_feature_level",
    "Level",
    "The level of each feature that the cluster uses, such as metadata.version; 0 is off.",
    unit=Unit.BARE,
)
