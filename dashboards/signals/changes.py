"""Changes of clusters, incidents, and the exact seconds in which partitions were not as they should be."""

from __future__ import annotations

from typing import Final

from dashboards.signals.derived import signal

ISR_SHRINKS: Final = signal(
    "kafka_replication_cluster_isr_shrinks_total",
    meaning=(
        "Changes in which a broker left an ISR. A burst during a restart is normal; a steady rate means replicas that "
        "cannot keep up. ISR removals by cause say why."
    ),
)
ISR_EXPANDS: Final = signal(
    "kafka_replication_cluster_isr_expands_total",
    meaning=(
        "Changes in which a broker joined an ISR. Each shrink should be followed by one; if not, a broker is missing."
    ),
)
LEADER_CHANGES: Final = signal(
    "kafka_replication_cluster_leader_changes_total",
    meaning=(
        "Partitions that got another leader. Clients retry briefly at each. Outside restarts and preferred leader "
        "elections there should be none."
    ),
)
UNCLEAN_ELECTIONS: Final = signal(
    "kafka_replication_cluster_unclean_elections_total",
    "Unclean elections",
    (
        "Leaders elected from outside the in-sync replicas: acknowledged records may be lost. Should always be 0. "
        "Find the topics, inform their owners of the time, and check unclean.leader.election.enable."
    ),
)
MISSED_CHANGES: Final = signal(
    "kafka_replication_cluster_missed_changes_total",
    "Missed changes",
    (
        "Changes inferred from epoch gaps but never observed. With the metadata log there should be none; polling "
        "misses changes that are shorter than its interval."
    ),
)


# Open and closed incidents, by class.


OPEN_INCIDENTS: Final = signal("kafka_replication_cluster_open_incidents", "Open now")
CLOSED_INCIDENTS: Final = signal("kafka_replication_cluster_closed_incidents_total")
INCIDENT_OPENED: Final = signal("kafka_replication_incident_opened_timestamp_seconds", "Open for")
INCIDENT_INFO: Final = signal("kafka_replication_incident_info")


# Exact seconds in which partitions of a cluster were not as they should be, summed over its partitions.


UNDER_MIN_ISR_SECONDS: Final = signal(
    "kafka_replication_cluster_under_min_isr_seconds_total",
    "Writes rejected",
    (
        "Time under min ISR in this time range, summed over partitions: ten partitions for a minute are ten minutes. "
        "Producers with acks=all were rejected there. Exact, however short: independent of scrapes."
    ),
)
OFFLINE_SECONDS: Final = signal(
    "kafka_replication_cluster_offline_seconds_total",
    "Time offline",
    (
        "Time without a leader in this time range, summed over partitions: neither reads nor writes. Elections after "
        "the loss of a broker take a part of a second each, and are counted, too."
    ),
)
UNDER_REPLICATED_SECONDS: Final = signal(
    "kafka_replication_cluster_under_replicated_seconds_total",
    "Time under-replicated",
    (
        "Time with replicas missing in this time range, summed over partitions. Restarts are part of it; it is a cost "
        "of redundancy, not of availability."
    ),
)
UNKNOWN_SECONDS: Final = signal(
    "kafka_replication_cluster_unknown_seconds_total",
    "Not observed",
    (
        "Time in this time range in which partitions were not observed, summed over them. The other numbers lack what "
        "happened then: with much of it, they say too little."
    ),
)
