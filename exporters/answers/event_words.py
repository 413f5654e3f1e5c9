"""Events in words: one, or what happened at one moment in as few lines as say it (``streaming.contracts.words``).

What happened to partitions at once, with the same cause and to the same brokers, is one line. Any other event is a
line of its own. A moment is one time of one source: of the metadata log one batch of records, of polls one poll.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.read_model.snapshot import SECOND, EventRow
from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import NO_LEADER, UNSEEN_LEADER
from streaming.contracts.words import MovedPartition, StepShape, brokers_in_words, movements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

EVENT_STYLES: Final[dict[str, str]] = {
    EventKind.UNCLEAN_ELECTION: "bold red",
    EventKind.OFFLINE: "bold red",
    EventKind.UNDER_MIN_ISR_BEGAN: "red",
    EventKind.LOG_DIR_OFFLINE: "red",
    EventKind.ISR_SHRINK: "yellow",
    EventKind.FENCED: "yellow",
    EventKind.UNDER_REPLICATED_BEGAN: "yellow",
    EventKind.ISR_EXPAND: "green",
    EventKind.ONLINE: "green",
    EventKind.UNFENCED: "green",
    EventKind.UNDER_MIN_ISR_ENDED: "green",
    EventKind.UNDER_REPLICATED_ENDED: "green",
}

_EXPLAINED: Final = frozenset({EventKind.ISR_SHRINK, EventKind.LEADER_CHANGE, EventKind.UNCLEAN_ELECTION})


def clock(micros: int) -> str:
    """Format a time as UTC time of day.

    >>> clock(3_723_004_000)
    '01:02:03.004'
    """
    return datetime.fromtimestamp(micros / SECOND, UTC).strftime("%H:%M:%S.%f")[:-3]


def subject(event: EventRow) -> str:
    """Return the subject of an event as Kafka prints it: ``orders-3`` for a partition."""
    if event.topic is not None and event.partition is not None:
        return f"{event.topic}-{event.partition}"
    if event.topic is not None:
        return event.topic
    if event.event_broker is not None:
        return f"broker {event.event_broker}"
    return event.source if event.subject == "source" else event.cluster


def what(event: EventRow) -> str:
    """Describe an event: the brokers that left or joined the ISR, the old and the new leader."""
    if event.event == EventKind.ISR_SHRINK:
        return f"{brokers_in_words(event.left_isr)} left {isr_after(event)}"
    if event.event == EventKind.ISR_EXPAND:
        return f"{brokers_in_words(event.joined_isr)} joined {isr_after(event)}"
    if event.event in {EventKind.LEADER_CHANGE, EventKind.UNCLEAN_ELECTION}:
        return f"leader {_leader(event.leader_before)} → {_leader(event.leader_after)}"
    return event.detail or ""


def why(event: EventRow) -> str:
    """Describe the cause of an event with its evidence; an ambiguous cause with its candidates.

    An event of polls that says who left, or leads, has in its detail from what that was inferred.
    """
    if event.cause is None:
        return ""
    others = [candidate for candidate in event.candidates if candidate != event.cause]
    because = f": {event.detail}" if event.detail and event.event in _EXPLAINED else ""
    return f"{event.cause} ({event.evidence}{', or ' + ' or '.join(others) if others else ''}{because})"


def style_of(event: str) -> str:
    """Return the colour of a kind of event, by severity."""
    return EVENT_STYLES.get(event, "")


def worst_of(events: Iterable[str]) -> str:
    """Return the most severe of kinds of events."""
    ranks = [*EVENT_STYLES]
    return min(events, key=lambda event: ranks.index(event) if event in ranks else len(ranks))


def isr_after(event: EventRow) -> str:
    """Return the ISR after an event; "" if it is of no partition."""
    return "" if event.isr_after is None else f"(ISR {', '.join(map(str, event.isr_after)) or 'empty'})"


def _leader(broker: int | None) -> str:
    if broker == UNSEEN_LEADER:
        return "?"
    return "none" if broker is None or broker == NO_LEADER else str(broker)


def as_event(row: Mapping[str, Any]) -> EventRow:
    """Convert a row of ``replication_events`` to the value that is put into words."""
    values: dict[str, Any] = {name: row[name] for name in EventRow._fields}
    lists = {name: tuple(row[name] or ()) for name in ("candidates", "left_isr", "joined_isr")}
    return EventRow(**{**values, **lists})


# Events of one moment.


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
    EventKind.REASSIGNMENT_BEGAN: "begin to move",
    EventKind.REASSIGNMENT_COMPLETED: "moved",
    EventKind.REASSIGNMENT_CANCELLED: "stay, as their reassignment was cancelled",
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
