"""What happened in the step of one partition: its events, and the totals they add to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streaming.changes.change import Event
from streaming.changes.protocol import violations
from streaming.contracts.events import Cause, EventKind
from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.changes.state import PartitionState
    from streaming.contracts.identifiers import BrokerId

_UNCLEAN = frozenset({Cause.UNCLEAN_ELECTION, Cause.LAST_KNOWN_LEADER})
Happening = tuple[EventKind, "BrokerId | None", "str | None"]


def left_isr(before: PartitionState, after: PartitionState) -> tuple[BrokerId, ...]:
    """Name the brokers that left the ISR, in the order they stood there."""
    return tuple(broker for broker in before.isr if broker not in after.isr)


def is_unclean(before: PartitionState, after: PartitionState, cause: Cause | None) -> bool:
    """Tell whether the step elected a leader uncleanly: the cause says so, or the recovery flag went up."""
    return cause in _UNCLEAN or (after.leader_recovering and not before.leader_recovering)


def happenings(before: PartitionState, after: PartitionState, cause: Cause | None, missed: int) -> Iterator[Happening]:
    """Tell what happened between two states of one partition, in the order a person would tell it."""
    if missed:
        yield EventKind.CHANGES_MISSED, None, f"{missed} changes were not seen"
    yield from _of_isr(before, after)
    yield from _of_leader(before, after, cause)
    yield from _of_health(before, after)
    yield from _of_reassignment(before, after)
    if before.min_isr_configured != after.min_isr_configured:
        yield EventKind.MIN_ISR_CHANGE, None, f"{before.min_isr_configured} to {after.min_isr_configured}"
    for sentence in violations(before, after, cause):
        yield EventKind.PROTOCOL_VIOLATION, None, sentence


def _of_isr(before: PartitionState, after: PartitionState) -> Iterator[Happening]:
    if left := left_isr(before, after):
        yield EventKind.ISR_SHRINK, left[0] if len(left) == 1 else None, None
    if joined := left_isr(after, before):
        yield EventKind.ISR_EXPAND, joined[0] if len(joined) == 1 else None, None


def _of_leader(before: PartitionState, after: PartitionState, cause: Cause | None) -> Iterator[Happening]:
    if before.leader != after.leader:
        yield EventKind.LEADER_CHANGE, None if after.leader == NO_LEADER else after.leader, None
    if is_unclean(before, after, cause):
        yield EventKind.UNCLEAN_ELECTION, after.leader, None


def _of_health(before: PartitionState, after: PartitionState) -> Iterator[Happening]:
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


def _of_reassignment(before: PartitionState, after: PartitionState) -> Iterator[Happening]:
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


def counted(before: PartitionState, after: PartitionState, cause: Cause | None, missed: int) -> PartitionState:
    """Add one step to the totals of a partition."""
    return replace(
        after,
        isr_shrinks=before.isr_shrinks + bool(left_isr(before, after)),
        isr_expands=before.isr_expands + bool(left_isr(after, before)),
        leader_changes=before.leader_changes + (before.leader != after.leader),
        unclean_elections=before.unclean_elections + is_unclean(before, after, cause),
        missed_changes=before.missed_changes + missed,
        change_number=before.change_number + 1,
    )


def named(identity: str, happened: Iterator[Happening]) -> tuple[Event, ...]:
    """Give events their ids: the identity of the change, the kind, and a number where a kind repeats."""
    events: list[Event] = []
    for kind, broker, detail in happened:
        repeats = sum(event.event is kind for event in events)
        suffix = f"/{repeats}" if repeats else ""
        events.append(Event(event_id=f"{identity}/{kind}{suffix}", event=kind, event_broker=broker, detail=detail))
    return tuple(events)
