"""Events of one moment in as few lines as say what happened: by the rule of ``streaming.contracts.words``.

What happened to partitions at once, with the same cause and to the same brokers, is one line. Any other event is a
line of its own. A moment is one time of one source: of the metadata log one batch of records, of polls one poll.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.answers.event_text import clock, isr_after, style_of, subject, what, why, worst_of
from streaming.contracts.events import EventKind
from streaming.contracts.words import MovedPartition, StepShape, movements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporters.read_model.snapshot import EventRow

_SAID_BY_SHAPE: Final = frozenset({
    EventKind.ISR_SHRINK, EventKind.ISR_EXPAND, EventKind.LEADER_CHANGE, EventKind.OFFLINE, EventKind.TOPIC_CREATED,
    EventKind.TOPIC_DELETED,
})  # fmt: skip
_UNDER_REPLICATED: Final = {
    EventKind.UNDER_REPLICATED_BEGAN: "under-replicated",
    EventKind.UNDER_REPLICATED_ENDED: "no longer under-replicated",
}
"""Said only where no replica left or joined: else it follows."""
_FURTHER: Final = {
    EventKind.UNCLEAN_ELECTION: "with an unclean election",
    EventKind.ONLINE: "online again",
    EventKind.UNDER_MIN_ISR_BEGAN: "under min ISR",
    EventKind.UNDER_MIN_ISR_ENDED: "no longer under min ISR",
    EventKind.REASSIGNMENT_BEGAN: "being moved",
    EventKind.REASSIGNMENT_COMPLETED: "moved",
    EventKind.REASSIGNMENT_CANCELLED: "not moved, as cancelled",
}
_OF_STEPS: Final = frozenset({*_SAID_BY_SHAPE, *_UNDER_REPLICATED, *_FURTHER})


class EventGroup(NamedTuple):
    """One line.

    Attributes:
        events: that it is about, at least one, all of one moment and one cause.
        subject: ``orders-3``, ``28 partitions``, ``broker 3``.
        what: what happened.
        cause: why, with its evidence; empty for none.
    """

    events: tuple[EventRow, ...]
    subject: str
    what: str
    cause: str

    @property
    def at(self) -> int:
        """The latest time at which it can have occurred, UTC microseconds."""
        return self.events[0].occurred_not_after

    @property
    def style(self) -> str:
        """The colour of the worst of its events."""
        return style_of(worst_of(event.event for event in self.events))

    def line(self) -> str:
        """Return it as one line, for a pipe or a log."""
        return "  ".join(part for part in (clock(self.at), self.subject, self.what, self.cause) if part)


def by_moment(events: Iterable[EventRow]) -> Iterator[EventGroup]:
    """Gather events; those of one moment must follow each other. In the order of the moments."""
    for _, at_once in groupby(events, key=lambda event: event.occurred_not_after):
        places: dict[tuple[str, str, int], list[EventRow]] = {}
        for event in at_once:
            places.setdefault((event.cluster_id, event.source, event.occurred_not_before), []).append(event)
        for moment in places.values():
            yield from _groups(moment)


def _groups(moment: list[EventRow]) -> Iterator[EventGroup]:
    """Gather the events of one moment: those that stand for themselves first, as a broker's explain the others."""
    changes: dict[tuple[object, ...], list[EventRow]] = {}
    for event in moment:
        if event.partition is None or event.event not in _OF_STEPS:
            text = what(event)
            yield EventGroup((event,), subject(event), f"{event.event}: {text}" if text else event.event, why(event))
        else:
            changes.setdefault(_identity(event), []).append(event)
    by_shape: dict[StepShape, list[EventRow]] = {}
    steps = []
    for change in changes.values():
        steps.append(_step(change))
        by_shape.setdefault(steps[-1].shape, []).extend(change)
    for movement in movements(steps):
        events = by_shape[movement.shape]
        about, said = movement.sentence()
        if len(movement.steps) == 1 and (movement.shape.left or movement.shape.joined):
            said += f" {isr_after(events[0])}"
        yield EventGroup(tuple(events), about, said, movement.shape.cause)


def _identity(event: EventRow) -> tuple[object, ...]:
    """Return what the events of one change have in common: a partition may change twice at one time."""
    return (event.topic, event.partition, event.leader_before, event.leader_after, event.isr_before, event.isr_after)


def _step(change: list[EventRow]) -> MovedPartition:
    first, kinds = change[0], [event.event for event in change]
    shape = StepShape(
        why(first),
        left=first.left_isr,
        joined=first.joined_isr,
        created=EventKind.TOPIC_CREATED in kinds,
        deleted=EventKind.TOPIC_DELETED in kinds,
    )
    further = _FURTHER if shape.left or shape.joined else {**_FURTHER, **_UNDER_REPLICATED}
    return MovedPartition(
        subject(first),
        shape,
        leader_moved=EventKind.LEADER_CHANGE in kinds,
        offline=EventKind.OFFLINE in kinds,
        further=tuple(words for kind, words in further.items() if kind in kinds),
    )
