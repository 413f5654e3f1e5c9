"""The steps of partitions, as the model took them and as the tables tell them, in one form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streaming.contracts.identifiers import NO_LEADER
from streaming.sources.simulated import TraceEntry

SECOND = 1_000_000
DELETED = -1  # in place of a partition epoch


def steps(trace: Iterable[TraceEntry]) -> list[tuple[Any, ...]]:
    """What the model did, in its own words; who led or was in sync of a deleted partition is nobody."""
    return sorted(
        (
            entry.topic_id,
            entry.partition,
            DELETED if entry.deleted else entry.partition_epoch,
            entry.leader_epoch,
            NO_LEADER if entry.deleted else entry.leader,
            () if entry.deleted else entry.isr,
            entry.replicas,
            () if entry.deleted else entry.elr,
            entry.time,
            str(entry.cause),
        )
        for entry in trace
    )


def recorded(changes: Iterable[Mapping[str, Any]], cluster: str | None = None) -> list[tuple[Any, ...]]:
    """What rows of ``partition_changes`` say, in the model's words; baselines and configurations are no steps."""
    found = []
    for row in changes:
        after = row["after"]
        if row["subject"] != "partition" or row["is_baseline"] or row["cause"] == "config":
            continue
        if cluster is None or row["cluster"] == cluster:
            found.append((
                row["topic_id"],
                row["partition"],
                DELETED if after["is_deleted"] else after["partition_epoch"],
                after["leader_epoch"],
                after["leader"],
                tuple(after["isr"]),
                tuple(after["replicas"]),
                tuple(after["elr"]),
                round(row["occurred_not_after"].timestamp() * SECOND),
                row["cause"],
            ))  # fmt: skip
    return sorted(found)
