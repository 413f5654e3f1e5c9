"""Clusters: partitions in each state of health, brokers, data age, settings and versions, the metadata quorum."""

from __future__ import annotations

from typing import Final

from dashboards.promql import Unit
from dashboards.signals.derived import signal

DATA_AGE: Final = signal(
    "kafka_replication_cluster_state_age_seconds",
    "Data age",
    (
        "Time since the newest observation of the cluster. Beyond a minute all state disappears from the boards, "
        "instead of looking healthy. A click opens the health of isrwatch: the source whose age grows has failed."
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
        "Partitions with fewer in-sync replicas than min.insync.replicas: producers with acks=all are rejected. "
        "Restore the brokers that left the ISR; do not lower min.insync.replicas to silence the alert."
    ),
)
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
        "Why the cluster is not healthy, by condition, as isrwatch health says it: how many partitions, brokers or "
        "other things. Without a condition it is healthy."
    ),
)
CONDITION: Final = signal("kafka_replication_condition_since_seconds", "Raised for", copies="min")
FEATURE_LEVEL: Final = signal(
    "kafka_replication_cluster_feature_level",
    "Level",
    "The level of each feature that the cluster uses, such as metadata.version; 0 is off.",
    unit=Unit.BARE,
)


# Settings and versions: topics that are not durable, throttles left behind, unfinished upgrades.


WEAK_TOPICS: Final = signal("kafka_replication_cluster_weak_topics")
LEFT_THROTTLES: Final = signal(
    "kafka_replication_cluster_left_throttles",
    "Throttles left behind",
    (
        "Topics and brokers whose replication is throttled though nothing is being reassigned: their followers cannot "
        "catch up. isrwatch settings names them and how to remove the throttle."
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


# The quorum of controllers.


CONTROLLER: Final = signal(
    "kafka_replication_cluster_controller",
    "Active controller",
    "Node id of the active controller. Its log has the reason of each election.",
    unit=Unit.BARE,
)
CONTROLLER_CHANGES: Final = signal(
    "kafka_replication_cluster_controller_changes_total",
    "Controller changes",
    "Failovers of the active controller. Several in an hour indicate an unstable quorum.",
)
CONTROLLER_EPOCH: Final = signal(
    "kafka_replication_cluster_controller_epoch",
    "Controller epoch",
    "Raft epoch of the active controller: it grows with each election of one, also of the same.",
    unit=Unit.BARE,
)
VOTER: Final = signal("kafka_replication_quorum_member_voter", "Voter")
MEMBER_LAG: Final = signal("kafka_replication_quorum_member_lag_records")
MEMBER_BEHIND: Final = signal(
    "kafka_replication_quorum_member_behind_seconds",
    "Behind for",
    (
        "Time since each member had all that the quorum's leader has. A voter that stays behind counts no more: with a "
        "majority of them behind, no metadata changes. A broker that is behind acts on old metadata."
    ),
)
