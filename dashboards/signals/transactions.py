"""Open, late and hanging transactions."""

from __future__ import annotations

from typing import Final

from dashboards.signals.derived import signal

OPEN: Final = signal(
    "kafka_replication_cluster_open_transactions",
    "Open transactions",
    "Transactions that are not complete. Some are always, under load.",
)
LATE: Final = signal(
    "kafka_replication_cluster_late_transactions",
    "Late transactions",
    "Transactions that are open for longer than their timeout: the coordinator should have aborted them.",
)
HANGING: Final = signal(
    "kafka_replication_cluster_hanging_transactions",
    "Hanging transactions",
    (
        "Transactions that a partition has open and no coordinator will end: consumers with read_committed stop there. "
        "kafka-transactions abort ends one; the table below has what it needs."
    ),
)
HANGING_INFO: Final = signal("kafka_replication_hanging_transaction_info", "Hanging")
