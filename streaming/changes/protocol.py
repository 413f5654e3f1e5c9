"""Rules that Kafka never breaks, checked on live data. A breach is an event, not a crash.

Source: KIP-631, KIP-966, ``PartitionRegistration`` and ``ReplicationControlManager`` of Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.changes.state import PartitionState

_UNCLEAN = frozenset({Cause.UNCLEAN_ELECTION, Cause.LAST_KNOWN_LEADER})


def violations(before: PartitionState | None, after: PartitionState, cause: Cause | None) -> Iterator[str]:
    """Name every rule that this step breaks, one short sentence each."""
    yield from _of_state(after)
    if before is not None and not before.is_deleted:
        yield from _of_step(before, after, cause)


def _of_state(after: PartitionState) -> Iterator[str]:
    if after.leader not in (NO_LEADER, *after.isr):
        yield f"leader {after.leader} is not in the ISR {list(after.isr)}"
    if not set(after.isr) <= set(after.replicas):
        yield f"ISR {list(after.isr)} is not within the replicas {list(after.replicas)}"
    if set(after.elr) & set(after.isr):
        yield f"ELR {list(after.elr)} and ISR {list(after.isr)} overlap"


def _of_step(before: PartitionState, after: PartitionState, cause: Cause | None) -> Iterator[str]:
    if before.leader_epoch is not None and after.leader_epoch is not None and after.leader_epoch < before.leader_epoch:
        yield f"leader epoch went back from {before.leader_epoch} to {after.leader_epoch}"
    is_new_leader = after.leader not in (NO_LEADER, before.leader)
    was_eligible = after.leader in (*before.isr, *before.elr)
    is_next_step = after.partition_epoch is not None and after.partition_epoch == (before.partition_epoch or 0) + 1
    if is_new_leader and not was_eligible and is_next_step and cause not in _UNCLEAN:
        yield f"leader {after.leader} was elected from outside ISR and ELR without being called unclean"
