"""Open, late and hanging transactions."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal
from dashboards.signals.labels import CLUSTER

_cluster = partial(Signal, labels=CLUSTER)

OPEN: Final = _cluster(
    "Open transactions", "cluster_open_transactions", "Transactions that are not complete. Some are always, under load."
)
LATE: Final = _cluster(
    "Late transactions",
    "cluster_late_transactions",
    "Transactions that are open for longer than their timeout: the coordinator should have aborted them.",
)
HANGING: Final = _cluster(
    "Hanging transactions",
    "cluster_hanging_transactions",
    (
        "Transactions that a partition has open and no coordinator will end: consumers with read_committed stop there. "
        "kafka-transactions abort ends one; the table below has what it needs."
    ),
)
HANGING_INFO: Final = Signal(
    name="Hanging",
    meaning="Each hanging transaction, with what kafka-transactions abort needs.",
    metric="hanging_transaction_info",
    labels=("cluster", "producer_id", "producer_epoch", "transactional_id", "partitions"),
)
