"""Rows of replicas, log directories, the metadata quorum, transactions and broker metrics, from the newest samples.

Each has every column of its table, and what follows from them. Unknown stays unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.cluster_samples import behind_seconds
from exporters.read_model.event_filter import matches_topic
from exporters.read_model.times import SECOND
from streaming.contracts.health import is_late, lag
from streaming.contracts.sample_tables import (
    BROKER_METRICS,
    ISR_RECONCILIATION,
    LOG_DIRECTORIES,
    QUORUM_MEMBERS,
    REPLICA_OFFSETS,
    TRANSACTIONS,
)
from streaming.delta.log.queries import columns_of, open_ours, select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place

    Row = dict[str, Any]

_FULL: Final = 100


def directory_rows(folder: Place, now: int) -> list[Row]:
    """Return the log directories of every broker: those first that are offline, then the fullest.

    Args:
        folder: of the tables; this one need not exist.
        now: UTC microseconds; the age of the samples is measured from it.
    """
    rows = [{**row, "used_percent": _used_percent(row)} for row in samples_of(folder, LOG_DIRECTORIES, now)]
    return sorted(rows, key=lambda row: (row["is_online"], -(row["used_percent"] or 0), row["broker"], row["log_dir"]))


def _used_percent(row: Row) -> float | None:
    total, usable = row["total_bytes"], row["usable_bytes"]
    return _FULL * (total - usable) / total if total and usable is not None else None


def replica_rows(folder: Place, topics: tuple[str, ...], now: int, *, with_caught_up: bool) -> list[Row]:
    """Return the replicas that are behind, longest first; one that only lacks what came since the last look is not."""
    rows = [row for row in samples_of(folder, REPLICA_OFFSETS, now) if matches_topic(row["topic"], topics)]
    for row in rows:
        since = row["behind_since"]
        row["behind_seconds"] = (
            None if row["lag"] is None else (row["collected_at"] - (since or row["collected_at"])) / SECOND
        )
    return sorted(
        (row for row in rows if with_caught_up or row["behind_seconds"]),
        key=lambda row: (-(row["behind_seconds"] or 0), row["cluster"], row["topic"], row["partition"], row["broker"]),
    )


def quorum_rows(folder: Place, now: int) -> list[Row]:
    """Return the members of each cluster's metadata quorum: its leader, the other voters, the observers.

    ``lag`` is in records, ``behind_seconds`` the time since a member had all that the leader has, both as the leader
    saw it, by its clock.
    """
    rows = [*samples_of(folder, QUORUM_MEMBERS, now)]
    leaders = {row["cluster_id"]: row for row in rows if row["node"] == row["controller"] and row["is_voter"]}
    for row in rows:
        leader = leaders.get(row["cluster_id"])
        row["role"] = "leader" if row is leader else "voter" if row["is_voter"] else "observer"
        row["lag"] = None if leader is None else lag(row["log_end_offset"], leader["log_end_offset"])
        row["behind_seconds"] = (
            None if leader is None else behind_seconds(row["last_caught_up_at"], leader["last_caught_up_at"])
        )
    order = ("leader", "voter", "observer")
    return sorted(rows, key=lambda row: (row["cluster"], order.index(row["role"]), row["node"]))


def transaction_rows(folder: Place, topics: tuple[str, ...], now: int) -> list[Row]:
    """Return the transactions: those first that hang, then those that are late, then the oldest."""
    rows = [
        row
        for row in samples_of(folder, TRANSACTIONS, now)
        if not topics or any(matches_topic(name.rpartition("-")[0], topics) for name in row["transaction_partitions"])
    ]
    for row in rows:
        started, seen = row["started_at"], row["collected_at"]
        row["is_late"] = is_late(started, row["timeout_ms"], seen)
        row["open_seconds"] = None if started is None else max(0, seen - started) / SECOND
    return sorted(
        rows,
        key=lambda row: (not row["is_hanging"], not row["is_late"], -(row["open_seconds"] or 0), row["producer_id"]),
    )


def metric_rows(folder: Place, now: int) -> list[Row]:
    """Return the metrics of every broker that has an agent."""
    return sorted(
        samples_of(folder, BROKER_METRICS, now), key=lambda row: (row["cluster"], row["metric"], row["broker"])
    )


def meter_rows(folder: Place, now: int) -> list[Row]:
    """Return the ISR changes that brokers counted, compared with those recorded; those first that miss most."""
    return sorted(
        samples_of(folder, ISR_RECONCILIATION, now, sampled_at="until"),
        key=lambda row: (-row["missed"], row["cluster"], row["broker"], row["meter"]),
    )


def samples_of(folder: Place, definition: Table, now: int, *, sampled_at: str = "collected_at") -> Iterator[Row]:
    """Return the rows of a table of samples, each with its age; none where there is no table."""
    samples = select(open_ours(folder, definition), definition)
    columns = columns_of(samples, samples.column_names)
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        yield {**row, "sample_age_seconds": max(0, now - row[sampled_at]) / SECOND}
