"""``contracts.health`` as Columns: the same definitions, compared with it on generated rows. Knows no table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its name everywhere in Spark

from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from pyspark.sql import Column


def replication_factor(replicas: Column, adding_replicas: Column) -> Column:
    """Count the replicas a partition is meant to have: those being added do not count yet (KIP-352)."""
    return F.size(replicas) - F.size(adding_replicas)


def effective_min_isr(configured: Column, replicas: Column) -> Column:
    """Cap ``min.insync.replicas`` at the replica count; null where the configured value is unknown."""
    return F.when(configured.isNotNull(), F.least(configured, F.size(replicas)))


def is_offline(leader: Column) -> Column:
    """Tell whether nobody leads: no reads, no writes."""
    return leader == NO_LEADER


def is_under_replicated(replicas: Column, isr: Column, adding_replicas: Column) -> Column:
    """Tell whether fewer replicas are in sync than the partition is meant to have."""
    return F.size(isr) < replication_factor(replicas, adding_replicas)


def is_under_min_isr(min_isr_effective: Column, isr: Column) -> Column:
    """Tell whether writes with ``acks=all`` are refused; null where the minimum is unknown."""
    return F.size(isr) < min_isr_effective


def is_at_min_isr(min_isr_effective: Column, isr: Column) -> Column:
    """Tell whether the loss of one more replica stops writes; null where the minimum is unknown."""
    return F.size(isr) == min_isr_effective


def is_off_preferred_leader(replicas: Column, leader: Column) -> Column:
    """Tell whether somebody other than the first replica leads (false while nobody leads)."""
    return (
        (leader != NO_LEADER) & (F.size(replicas) > 0) & F.coalesce(leader != F.get(replicas, F.lit(0)), F.lit(False))
    )
