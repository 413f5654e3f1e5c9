"""When a partition is healthy: Kafka's own definitions, each stated once.

Source: ``Partition.isUnderReplicated``, ``isUnderMinIsr``, ``isAtMinIsr`` of Apache Kafka; KIP-352 (original replica
count during a reassignment), KIP-427 (at min ISR), KAFKA-15583 (effective minimum). ``transforms.partition_health``
repeats them as Spark columns, compared on generated rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Collection


def replication_factor(replicas: Collection[int], adding_replicas: Collection[int]) -> int:
    """Count the replicas a partition is meant to have: those being added do not count yet (KIP-352)."""
    return len(replicas) - len(adding_replicas)


def effective_min_isr(configured: int | None, replicas: Collection[int]) -> int | None:
    """Cap ``min.insync.replicas`` at the replica count; None where the configured value is unknown."""
    return None if configured is None else min(configured, len(replicas))


def is_offline(leader: int) -> bool:
    """Tell whether nobody leads: no reads, no writes."""
    return leader == NO_LEADER


def is_under_replicated(replicas: Collection[int], isr: Collection[int], adding_replicas: Collection[int]) -> bool:
    """Tell whether fewer replicas are in sync than the partition is meant to have.

    A leaderless partition counts as under-replicated, too: it is never healthy.
    """
    return len(isr) < replication_factor(replicas, adding_replicas)


def is_under_min_isr(min_isr_effective: int | None, isr: Collection[int]) -> bool | None:
    """Tell whether writes with ``acks=all`` are refused; None where the minimum is unknown."""
    return None if min_isr_effective is None else len(isr) < min_isr_effective


def is_at_min_isr(min_isr_effective: int | None, isr: Collection[int]) -> bool | None:
    """Tell whether the loss of one more replica stops writes; None where the minimum is unknown."""
    return None if min_isr_effective is None else len(isr) == min_isr_effective


def is_off_preferred_leader(replicas: tuple[int, ...], leader: int) -> bool:
    """Tell whether somebody other than the first replica leads (false while nobody leads)."""
    return leader != NO_LEADER and bool(replicas) and leader != replicas[0]


def group_lag(committed: int | None, end: int | None) -> int | None:
    """Count the records a group has yet to read, up to ``end`` (high watermark, or last stable offset).

    Never negative: after an unclean election a group may have committed beyond what there is. None while unknown.
    """
    return None if committed is None or end is None else max(0, end - committed)


def records_lost_unread(committed: int | None, log_start: int | None) -> int | None:
    """Count the records that were deleted before the group read them; None while unknown."""
    return None if committed is None or log_start is None else max(0, log_start - committed)
