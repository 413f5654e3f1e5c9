"""Rules that Kafka never breaks, checked on live data. A violation is an event, not a crash.

Source: KIP-631, KIP-966, ``PartitionRegistration`` and ``ReplicationControlManager`` of Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.state import PartitionState

_UNCLEAN = frozenset({Cause.UNCLEAN_ELECTION, Cause.LAST_KNOWN_LEADER})


def violations(before: PartitionState | None, after: PartitionState, cause: Cause | None) -> Iterator[str]:
    """Yield every rule that this step breaks, one short sentence each; of a diskless partition brokers make them up."""
    if after.is_diskless:
        return
    yield from _of_state(after)
    if before is not None and not before.is_deleted:
        yield from _of_step(before, after, cause)


def _of_state(after: PartitionState) -> Iterator[str]:
    replicas, isr, elr = list(after.replicas), list(after.isr), list(after.elr)
    if after.leader not in (NO_LEADER, *isr):
        yield f"leader {after.leader} is not in the ISR {isr}"
    if not set(isr) <= set(replicas):
        yield f"ISR {isr} is not within the replicas {replicas}"
    if not set(elr) <= set(replicas):
        yield f"ELR {elr} is not within the replicas {replicas}"
    if set(elr) & set(isr):
        yield f"ELR {elr} and ISR {isr} overlap"


def _of_step(before: PartitionState, after: PartitionState, cause: Cause | None) -> Iterator[str]:
    yield from _of_leader_epoch(before, after)
    if before.partition_epoch is None or after.partition_epoch is None:
        return
    if after.partition_epoch <= before.partition_epoch and _content(before) != _content(after):
        yield f"it changed, and its epoch {before.partition_epoch} did not grow"
    if after.partition_epoch == before.partition_epoch + 1:
        yield from _of_single_step(before, after, cause)


def _of_leader_epoch(before: PartitionState, after: PartitionState) -> Iterator[str]:
    was, now = before.leader_epoch, after.leader_epoch
    if was is not None and now is not None and now < was:
        yield f"leader epoch went back from {was} to {now}"


def _of_single_step(before: PartitionState, after: PartitionState, cause: Cause | None) -> Iterator[str]:
    """Check the rules of one partition epoch to the next: they need that no change was missed between the two."""
    was, now = before.leader_epoch, after.leader_epoch
    if before.leader != after.leader and was is not None and was == now:
        yield f"the leader changed from {before.leader} to {after.leader} within the leader epoch {was}"
    if was is not None and now is not None and now > was + 1:
        yield f"leader epoch jumped from {was} to {now} in one change"
    # A reassignment may end with the election of a replica that joined the ISR in the same step.
    eligible = (NO_LEADER, before.leader, *before.isr, *before.elr, *before.adding_replicas)
    if after.leader not in eligible and cause not in _UNCLEAN:
        yield f"leader {after.leader} was elected from outside ISR and ELR without being called unclean"


def _content(state: PartitionState) -> tuple[object, ...]:
    return state.replicas, state.isr, state.leader
