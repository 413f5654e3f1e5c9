"""Counted changes of ISRs and leaders, by cluster."""

from __future__ import annotations

from typing import Final

from dashboards.signals.derived import signal

ISR_SHRINKS: Final = signal(
    "kafka_replication_cluster_isr_shrinks_total",
    meaning=(
        "Changes in which a broker left an ISR. A burst during a restart is normal; a steady rate means replicas that "
        "cannot keep up. The panels above show which broker and why."
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
