"""Exact seconds in which partitions of a cluster were not as they should be, summed over its partitions."""

from __future__ import annotations

from typing import Final

from dashboards.signals.derived import signal

UNDER_MIN_ISR: Final = signal(
    "kafka_replication_cluster_under_min_isr_seconds_total",
    "Writes refused",
    (
        "Time under min ISR in this time range, summed over partitions: ten partitions for a minute are ten minutes. "
        "Producers with acks=all were refused there. Exact, however short: independent of scrapes."
    ),
)
OFFLINE: Final = signal(
    "kafka_replication_cluster_offline_seconds_total",
    "Offline",
    (
        "Time without a leader in this time range, summed over partitions: neither reads nor writes. Elections after "
        "the loss of a broker take a part of a second each, and are counted, too."
    ),
)
UNDER_REPLICATED: Final = signal(
    "kafka_replication_cluster_under_replicated_seconds_total",
    "Under-replicated",
    (
        "Time with replicas missing in this time range, summed over partitions. Restarts are part of it; it is a cost "
        "of redundancy, not of availability."
    ),
)
UNKNOWN: Final = signal(
    "kafka_replication_cluster_unknown_seconds_total",
    "Not observed",
    (
        "Time in this time range in which partitions were not observed, summed over them. The other numbers lack what "
        "happened then: with much of it, they say too little."
    ),
)
