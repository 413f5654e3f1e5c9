"""Metrics of the metadata quorum, of transactions, and of ISR changes that the change log lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.metric import OWN_PREFIX, SampledMetric
from exporters.read_model.cluster_samples import behind_seconds, member_of
from streaming.contracts.health import is_late, lag
from streaming.contracts.identifiers import Micros
from streaming.contracts.quorum_members import by_node
from streaming.contracts.sample_tables import BROKER_FEATURES, LOG_DIRECTORIES, QUORUM_MEMBERS, TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporters.metrics.metric import DatedSample, Number
    from exporters.read_model.cluster_samples import QuorumMemberRow, TransactionRow
    from exporters.read_model.snapshot import ClusterSnapshot

MEMBER_LABELS: Final = ("cluster", "node")
READ_TOGETHER: Final = (TRANSACTIONS.name, LOG_DIRECTORIES.name, QUORUM_MEMBERS.name, BROKER_FEATURES.name)
"""One source reads these at once: while there are no transactions, the others show when they were last asked for."""
_LISTED: Final = 3


def _member(
    name: str,
    text: str,
    column: str,
    value: Callable[[QuorumMemberRow, QuorumMemberRow | None], Number | None],
    unit: str = "",
) -> SampledMetric:
    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        members = by_node(cluster.samples.quorum_members or (), member_of)  # of two directories of a node, its vote's
        leader = next((each for each in members.values() if each.node == each.controller), None)
        for each in members.values():
            sample = value(each, leader)
            if sample is not None:
                yield (cluster.name, str(each.node)), sample, each.collected_at

    return SampledMetric(
        name=f"{OWN_PREFIX}quorum_member_{name}",
        labels=MEMBER_LABELS,
        help=text,
        unit=unit,
        source=f"quorum_members.{column}",
        samples=samples,
    )


def _transactions(
    name: str, text: str, column: str, is_counted: Callable[[TransactionRow], bool | None]
) -> SampledMetric:
    def samples(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
        rows, at = cluster.samples.transactions, looked_at(cluster)
        if rows is not None and at is not None:
            yield (cluster.name,), sum(bool(is_counted(row)) for row in rows), at

    return SampledMetric(
        name=f"{OWN_PREFIX}cluster_{name}_transactions",
        labels=("cluster",),
        help=text,
        source=f"transactions.{column}",
        samples=samples,
    )


def looked_at(cluster: ClusterSnapshot) -> int | None:
    """Return when transactions were last asked for: without any, only what the same source reads besides shows that."""
    beside = (getattr(cluster.samples, name) for name in READ_TOGETHER)
    return max((row.collected_at for rows in beside for row in rows or ()), default=None)


def _hanging(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    for row in cluster.samples.transactions or ():
        if row.is_hanging:
            partitions = row.transaction_partitions or ()
            more = f" and {len(partitions) - _LISTED} more" if len(partitions) > _LISTED else ""
            labels = (
                cluster.name,
                str(row.producer_id),
                str(row.producer_epoch),
                row.transactional_id or "",
                ",".join(partitions[:_LISTED]) + more,
            )
            yield labels, 1, row.collected_at


def _unrecorded(cluster: ClusterSnapshot) -> Iterator[DatedSample]:
    for row in cluster.samples.isr_reconciliation or ():
        yield (cluster.name, str(row.broker), row.meter), row.missed, row.until


QUORUM_METRICS: Final = (
    _member(
        "voter",
        "1 of a voter of the metadata quorum, 0 of an observer.",
        "is_voter",
        lambda each, _: int(each.is_voter),
    ),
    _member(
        "lag_records",
        "Records of the metadata log that the quorum's leader has and the member has not, as the leader sees it.",
        "log_end_offset",
        lambda each, leader: None if leader is None else lag(each.log_end_offset, leader.log_end_offset),
        "records",
    ),
    _member(
        "behind_seconds",
        "Time since the member had all that the quorum's leader has, by the leader's clock.",
        "last_caught_up_at",
        lambda each, leader: (
            None if leader is None else behind_seconds(each.last_caught_up_at, leader.last_caught_up_at)
        ),
        "seconds",
    ),
)
TRANSACTION_METRICS: Final = (
    _transactions("open", "Transactions that are not complete.", "is_hanging", lambda row: not row.is_hanging),
    _transactions(
        "late",
        "Transactions that are open for longer than their timeout.",
        "started_at",
        lambda row: is_late(
            None if row.started_at is None else Micros(row.started_at), row.timeout_ms, Micros(row.collected_at)
        ),
    ),
    _transactions(
        "hanging",
        "Transactions that a partition has open and no coordinator will end: read_committed consumers stop there.",
        "is_hanging",
        lambda row: row.is_hanging,
    ),
    SampledMetric(
        name=f"{OWN_PREFIX}hanging_transaction_info",
        labels=("cluster", "producer_id", "producer_epoch", "transactional_id", "partitions"),
        help="A hanging transaction; always 1. kafka-transactions abort ends it.",
        source="transactions.is_hanging",
        samples=_hanging,
    ),
)
RECONCILIATION_METRICS: Final = (
    SampledMetric(
        name=f"{OWN_PREFIX}broker_unrecorded_isr_changes",
        labels=("cluster", "broker", "meter"),
        help="ISR changes that the broker counted as leader and that were not recorded, at least, within the window.",
        source="isr_reconciliation.missed",
        samples=_unrecorded,
    ),
)
