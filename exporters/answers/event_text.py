"""An event in words and its colour. Pure: no files, no clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.snapshot import SECOND, EventRow
from streaming.contracts.events import Cause, EventKind, meanings
from streaming.contracts.identifiers import NO_LEADER, UNSEEN_LEADER
from streaming.contracts.words import brokers_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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

CAUSES_EXPLAINED: Final[Mapping[str, str]] = {
    cause: text.rstrip(".").replace("`", "") for cause, text in meanings(Cause).items()
}
"""Every cause in words, for a reader who meets its name."""
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


def causes_explained(causes: Iterable[str | None]) -> dict[str, str]:
    """Return what the causes mean, each once and in their order; of one that a newer job wrote nothing is known."""
    return {each: CAUSES_EXPLAINED[each] for each in causes if each is not None and each in CAUSES_EXPLAINED}


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
    """Convert a row of ``replication_events``, also of JSON, to the value that is put into words."""
    columns = {name: row[name] for name in EventRow._fields}
    values: dict[str, Any] = {name: tuple(of) if isinstance(of, list) else of for name, of in columns.items()}
    lists = {name: values[name] or () for name in ("candidates", "left_isr", "joined_isr")}
    return EventRow(**{**values, **lists})
