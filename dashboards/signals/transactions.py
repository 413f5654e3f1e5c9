"""Of transactions: those that nobody will end."""

from __future__ import annotations

from typing import Final

from dashboards.promql import Signal
from dashboards.signals.labels import CLUSTER

HANGING: Final = Signal(
    name="Hanging transactions",
    meaning="Transactions that a partition has open and no coordinator will end: read_committed consumers stop there.",
    metric="cluster_hanging_transactions",
    labels=CLUSTER,
)
HANGING_INFO: Final = Signal(
    name="Hanging transaction",
    meaning="Who began a hanging transaction, and in which partitions it is open.",
    metric="hanging_transaction_info",
    labels=(*CLUSTER, "producer_id", "producer_epoch", "transactional_id", "partitions"),
)
