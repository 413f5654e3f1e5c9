"""The events of the step of one partition, and the totals they add to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from streaming.changes.change import Event
from streaming.changes.invariants import violations
from streaming.contracts.events import Cause, EventKind
from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.state import PartitionState

_UNCLEAN = frozenset({Cause.UNCLEAN_ELECTION, Cause.LAST_KNOWN_LEADER})
PendingEvent = tuple[EventKind, "BrokerId | None", "str | None"]
"""An event before it has an id: kind, broker, detail."""


class IsrStep(NamedTuple):
    """The brokers that left the ISR, in its order before, and those that joined it, in its order after."""

    left: tuple[BrokerId, ...] = ()
    joined: tuple[BrokerId, ...] = ()


def isr_step(before: PartitionState, after: PartitionState) -> IsrStep:
    """Return who left the ISR and who joined it; nobody where the ISR means nothing."""
    was, now = before.isr, after.isr
    if was == now or after.is_diskless:
        return IsrStep()
    return IsrStep(
        tuple([broker for broker in was if broker not in now]), tuple([broker for broker in now if broker not in was])
    )


def is_leader_changed(before: PartitionState, after: PartitionState) -> bool:
    """Return whether another broker leads, or none; every broker leads a diskless partition."""
    return before.leader != after.leader and not after.is_diskless


def is_unclean(before: PartitionState, after: PartitionState, cause: Cause | None) -> bool:
    """Return whether the step elected a leader uncleanly: its cause says so, or the leader began to recover.

    No record can be lost with the leader of a diskless partition.
    """
    if after.is_diskless:
        return False
    # It recovers until the ISR changes (KIP-704), so a leader from outside of the ISR was elected uncleanly once more.
    is_other = after.leader not in (NO_LEADER, before.leader, *before.isr, *before.elr)
    return cause in _UNCLEAN or (after.leader_recovering and (is_other or not before.leader_recovering))


def events_between(
    before: PartitionState, after: PartitionState, isr: IsrStep, cause: Cause | None, missed: int
) -> Iterator[PendingEvent]:
    """Yield the events between two states of one partition, a consequence after its cause."""
    if missed:
        yield EventKind.CHANGES_MISSED, None, f"{missed} changes were not seen"
    if isr.left:
        yield EventKind.ISR_SHRINK, isr.left[0] if len(isr.left) == 1 else None, None
    if isr.joined:
        yield EventKind.ISR_EXPAND, isr.joined[0] if len(isr.joined) == 1 else None, None
    yield from _of_leader(before, after, cause)
    yield from _of_health(before, after)
    yield from _of_reassignment(before, after)
    if before.min_isr_configured != after.min_isr_configured:
        yield EventKind.MIN_ISR_CHANGE, None, f"{before.min_isr_configured} to {after.min_isr_configured}"
    for sentence in violations(before, after, cause):
        yield EventKind.PROTOCOL_VIOLATION, None, sentence


def events_of_first(after: PartitionState) -> Iterator[PendingEvent]:
    """Yield the trouble of a partition that is observed for the first time, though its cluster was before."""
    if after.leader_recovering and not after.is_diskless:
        yield EventKind.UNCLEAN_ELECTION, after.leader, None
    healthy = after._replace(is_offline=False, is_under_replicated=False, is_under_min_isr=False)
    yield from _of_health(healthy, after)


def _of_leader(before: PartitionState, after: PartitionState, cause: Cause | None) -> Iterator[PendingEvent]:
    if is_leader_changed(before, after):
        yield EventKind.LEADER_CHANGE, None if after.leader == NO_LEADER else after.leader, None
    if is_unclean(before, after, cause):
        yield EventKind.UNCLEAN_ELECTION, after.leader, None


def _of_health(before: PartitionState, after: PartitionState) -> Iterator[PendingEvent]:
    for was, now, began, ended in (
        (before.is_offline, after.is_offline, EventKind.OFFLINE, EventKind.ONLINE),
        (
            before.is_under_replicated,
            after.is_under_replicated,
            EventKind.UNDER_REPLICATED_BEGAN,
            EventKind.UNDER_REPLICATED_ENDED,
        ),
        (
            bool(before.is_under_min_isr),
            bool(after.is_under_min_isr),
            EventKind.UNDER_MIN_ISR_BEGAN,
            EventKind.UNDER_MIN_ISR_ENDED,
        ),
    ):
        if was != now:
            yield (began if now else ended), None, None


def _of_reassignment(before: PartitionState, after: PartitionState) -> Iterator[PendingEvent]:
    was, now = (bool(state.adding_replicas or state.removing_replicas) for state in (before, after))
    if now and not was:
        yield EventKind.REASSIGNMENT_BEGAN, None, f"{list(before.replicas)} to {_target(after)}"
    if was and not now:
        is_cancelled = set(after.replicas) == set(before.replicas) - set(before.adding_replicas)
        is_cancelled = is_cancelled and bool(before.adding_replicas)
        kind = EventKind.REASSIGNMENT_CANCELLED if is_cancelled else EventKind.REASSIGNMENT_COMPLETED
        yield kind, None, f"replicas {list(after.replicas)}"


def _target(after: PartitionState) -> list[int]:
    return [broker for broker in after.replicas if broker not in after.removing_replicas]


def updated_totals(
    before: PartitionState, after: PartitionState, isr: IsrStep, cause: Cause | None, missed: int
) -> dict[str, Any]:
    """Return the totals after a step, by column."""
    return {
        "isr_shrinks": before.isr_shrinks + bool(isr.left),
        "isr_expands": before.isr_expands + bool(isr.joined),
        "leader_changes": before.leader_changes + is_leader_changed(before, after),
        "unclean_elections": before.unclean_elections + is_unclean(before, after, cause),
        "missed_changes": before.missed_changes + missed,
        "change_number": before.change_number + 1,
    }


def with_event_ids(identity: str, pending: Iterator[PendingEvent]) -> tuple[Event, ...]:
    """Return events with their ids: the identity of the change, the kind, and a number where a kind repeats.

    Ids follow from the change alone, so a batch that is applied again yields the same ids.
    """
    events: list[Event] = []
    numbers: dict[EventKind, int] = {}
    for kind, broker, detail in pending:
        number = numbers[kind] = numbers.get(kind, -1) + 1
        suffix = f"/{number}" if number else ""
        events.append(Event(event_id=f"{identity}/{kind}{suffix}", event=kind, event_broker=broker, detail=detail))
    return tuple(events)
