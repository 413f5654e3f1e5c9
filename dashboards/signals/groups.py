"""Groups, of every protocol and of Spark's queries, and transactions."""

from __future__ import annotations

from typing import Final

from dashboards.signals.derived import signal

INFO: Final = signal("kafka_replication_group_info")
MEMBERS: Final = signal("kafka_replication_group_members", "Members")
UNREAD: Final = signal(
    "kafka_replication_broker_unread_groups",
    "Groups not answered for",
    (
        "Groups whose coordinator did not say in its last answer what they have committed: it was late, refused, or "
        "has just started. Their lag is an older one, and soon unknown."
    ),
)
PROGRESS_AGE: Final = signal("kafka_replication_group_progress_age_seconds", "Last batch")
LAG: Final = signal(
    "kafka_replication_group_lag_records",
    meaning=(
        "Offsets that each group has not passed; fewer are records where there are transactions or compaction. A "
        "steady rise: its consumers are too slow, or gone. A step: one partition stands still, or many records were "
        "produced at once."
    ),
)
LAG_SECONDS: Final = signal(
    "kafka_replication_group_lag_at_least_seconds",
    "Lag in time",
    (
        "For how long, at least, each group could have read the oldest offset that it has not passed. Compare it with "
        "the retention of the topic: beyond that, records are lost."
    ),
)
RETENTION_USED: Final = signal("kafka_replication_group_retention_used_ratio")
LOST: Final = signal("kafka_replication_group_lost_records")
STUCK: Final = signal("kafka_replication_group_stuck_partitions", "Stuck")
BEYOND: Final = signal("kafka_replication_group_beyond_offsets", "Beyond")
READERS: Final = signal("kafka_replication_group_partitions")
OWNED: Final = signal("kafka_replication_group_owned_partitions", "Partitions")
LAST_LOSS: Final = signal("kafka_replication_group_last_loss_timestamp_seconds", "Last loss")
LAST_COMMIT: Final = signal("kafka_replication_group_last_commit_timestamp_seconds", "Last commit")


# Open, late and hanging transactions.


OPEN_TRANSACTIONS: Final = signal(
    "kafka_replication_cluster_open_transactions",
    "Open transactions",
    "Transactions that are not complete. Some are always, under load.",
)
LATE_TRANSACTIONS: Final = signal(
    "kafka_replication_cluster_late_transactions",
    "Late transactions",
    "Transactions that are open for longer than their timeout: the coordinator should have aborted them.",
)
HANGING_TRANSACTIONS: Final = signal(
    "kafka_replication_cluster_hanging_transactions",
    "Hanging transactions",
    (
        "Transactions that a partition has open and no coordinator will end: consumers with read_committed stop there. "
        "kafka-transactions abort ends one; the table below has what it needs."
    ),
)
HANGING_TRANSACTION_INFO: Final = signal("kafka_replication_hanging_transaction_info", "Hanging")
