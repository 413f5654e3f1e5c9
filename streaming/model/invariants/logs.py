"""Invariants of logs compared with what was acknowledged and read. Each gives the complaint, or None while it holds."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from streaming.contracts.identifiers import NO_LEADER
from streaming.model.storage.batch import NO_PRODUCER, Marker
from streaming.model.storage.log import first_difference, holds
from streaming.model.storage.producer_state import NO_SEQUENCE

if TYPE_CHECKING:
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.invariants.ghost import View
    from streaming.model.storage.batch import Batch


def offsets_ordered(view: View) -> str | None:
    """Log start ≤ high watermark ≤ log end on every replica. Source: ours, the third of the cheap checks."""
    for broker, replica in view.replicas.items():
        start, mark, end = replica.log.start, replica.high_watermark, replica.log.end
        if not start <= mark <= end:
            return f"{broker}: start {start}, high watermark {mark}, end {end}"
    return None


def epoch_cache_increasing(view: View) -> str | None:
    """Leader epochs and their first offsets grow along a log, and none is from the future.

    Source: ours, the fourth of the cheap checks.
    """
    for broker, replica in view.replicas.items():
        epochs = replica.log.epochs
        if not all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(epochs)):
            return f"epoch cache of {broker} not increasing: {epochs}"
        if replica.log.last_epoch > view.truth.leader_epoch:
            return f"epoch cache of {broker} beyond epoch {view.truth.leader_epoch}: {epochs}"
    return None


def log_matching(view: View) -> str | None:
    """Two replicas agree on every offset below both high watermarks.

    Source: LogMatching of Vanlightly's specifications. Scope: replicas that belong to the history since the last
    unclean election, and are not damaged.
    """
    memory = view.memory
    present = [
        (broker, replica)
        for broker, replica in view.replicas.items()
        if replica.log.last_epoch >= memory.history and broker not in memory.damaged
    ]
    for (one, first), (other, second) in combinations(present, 2):
        below = min(first.high_watermark, second.high_watermark)
        offset = first_difference(first.log, second.log, below)
        if offset is not None:
            return f"{one} and {other} differ at {offset}, below both high watermarks"
    return None


def leader_candidate_completeness(view: View) -> str | None:
    """Every running member of ISR and ELR has everything below the true high watermark.

    Source: LeaderCandidateCompleteness of Vanlightly's specifications. Scope: members that are still replicas.
    """
    mark = view.memory.true_high_watermark
    for broker in (*view.truth.isr, *(broker for broker in view.truth.elr if broker in view.truth.replicas)):
        if view.is_accepted(broker) and view.answers_for(broker) and view.end(broker) < mark:
            return f"{broker} may be elected, ends at {view.end(broker)}, and {mark} is committed"
    return None


def leader_completeness(view: View) -> str | None:
    """The controller's leader has everything below the true high watermark, and every acknowledged record.

    Source: LeaderCompleteness of Vanlightly's specifications. Scope: while its process runs, and no loss is excused.
    """
    broker, memory = view.truth.leader, view.memory
    if broker == NO_LEADER or view.excuse or not view.is_accepted(broker):
        return None
    if view.end(broker) < memory.true_high_watermark:
        return f"leader {broker} ends at {view.end(broker)}, and {memory.true_high_watermark} is committed"
    log = view.log(broker)
    missing = [] if log is None else memory.acked.missing_from(log)
    return f"leader {broker} lacks the acknowledged {missing[0]}" if missing else None


def no_committed_record_lost_globally(view: View) -> str | None:
    """Each acknowledged record is still in some replica.

    Source: NoCommittedRecordLostGlobally of Vanlightly's specifications. Scope: fewer damaged disks at once than the
    minimum ISR, and no damage of a last replica without eligible leader replicas.
    """
    if view.excuse:
        return None
    logs = [replica.log for replica in view.replicas.values()]
    lost = [span for span in view.memory.acked.spans if not any(holds(log, span) for log in logs)]
    return f"no replica has the acknowledged {lost[0]}" if lost else None


def consistent_read(view: View) -> str | None:
    """Whatever a consumer read at an offset is still exactly there on the leader.

    Source: ConsistentRead of Vanlightly's specifications. The consumer is one that is always at the high watermark of
    whichever broker leads. Scope: a leader that is not stale, no excused loss.
    """
    leader = view.believers.get(view.truth.leader)
    is_newest = leader is not None and leader.committed.leader_epoch == view.truth.leader_epoch
    if leader is None or not is_newest or view.excuse or not view.answers_for(leader.broker):
        return None
    consumed, log = view.memory.consumed, leader.replica.log
    if log.end < consumed.end:
        return f"{leader.broker} ends at {log.end}, and consumers read up to {consumed.end}"
    offset = first_difference(log, consumed, consumed.end)
    return None if offset is None else f"{leader.broker} has another record at {offset} than consumers read"


# Invariants of those who write and of what readers of committed transactions see; None while they hold.


def sequences_are_unique(view: View) -> str | None:
    """A sequence of a producer's epoch stands at most once in a log. Source: ours, the tenth of the cheap checks.

    The newest batch is compared with all before it; every batch is the newest once.
    """
    for broker, replica in view.replicas.items():
        *before, newest = replica.log.batches or (None,)
        if newest is None or newest.producer_id == NO_PRODUCER or newest.base_sequence == NO_SEQUENCE:
            continue
        twin = next((earlier for earlier in before if earlier is not None and _same_sequence(earlier, newest)), None)
        if twin is not None:
            return f"{broker}: {newest.base_offset} repeats {twin.base_offset}: sequence {newest.base_sequence}"
    return None


def _same_sequence(one: Batch, other: Batch) -> bool:
    names = ("producer_id", "producer_epoch", "base_sequence")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def read_committed(view: View) -> str | None:
    """Readers of committed transactions are shown nothing that is open or aborted.

    Source: ours, the eleventh of the cheap checks. Below the last stable offset every transaction has its marker, and
    the records of an aborted one are in the list that readers get.
    """
    for broker, leader in view.believers.items():
        batches = leader.replica.log.batches
        if batches and batches[-1].is_transactional:
            complaint = _shown(leader, batches)
            if complaint:
                return f"{broker}: {complaint}"
    return None


def _shown(leader: LeaderPartition, batches: list[Batch]) -> str | None:
    stable, decided = leader.last_stable_offset, dict[int, Marker]()
    aborted = leader.aborted_between(leader.replica.log.start, stable)
    for batch in reversed(batches):
        if batch.marker is not None:
            decided[batch.producer_id] = batch.marker
        elif batch.is_transactional and batch.base_offset < stable:
            hidden = any(
                transaction.producer_id == batch.producer_id
                and transaction.first_offset <= batch.base_offset < transaction.marker_offset
                for transaction in aborted
            )
            marker = decided.get(batch.producer_id)
            if marker is None or hidden is not (marker is Marker.ABORT):
                return f"records at {batch.base_offset} are shown below {stable}; decided: {marker}, hidden: {hidden}"
    return None
