"""Invariants of those who write and of what readers of committed transactions see; None while they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.storage.batch import NO_PRODUCER, Marker
from streaming.model.storage.producer_state import NO_SEQUENCE

if TYPE_CHECKING:
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.invariants.view import View
    from streaming.model.storage.batch import Batch


def sequences_are_unique(view: View) -> str | None:
    """A sequence of a producer's epoch stands at most once in a log. Source: ours, the tenth of the cheap checks.

    The newest batch is compared with all before it; every batch is the newest once.
    """
    for broker, replica in view.replicas.items():
        *before, newest = replica.log.batches or (None,)
        if newest is None or newest.producer_id == NO_PRODUCER or newest.base_sequence == NO_SEQUENCE:
            continue
        twin = next(
            (earlier for earlier in before if earlier is not None and _same_sequence(earlier, newest)),
            None,
        )
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
