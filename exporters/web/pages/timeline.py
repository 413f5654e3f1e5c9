"""The timeline of an incident as a drawing: announced work, brokers, and partitions in trouble, below each other."""

from __future__ import annotations

from collections import defaultdict
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.web.pages.drawing import Axis, Band, Drawing, Lane, TimeMark
from exporters.web.pages.incidents import level_of_incident
from exporters.web.pages.page import Level, Row, count
from streaming.contracts.events import EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from exporters.read_model.incident_archive import Work
    from exporters.read_model.snapshot import EventRow

BROKERS_SHOWN: Final = 8
_EDGE: Final = 0.04
_LEAST: Final = 10_000_000
_DOWN: Final = frozenset({EventKind.FENCED, EventKind.UNREGISTERED})
_UP: Final = frozenset({EventKind.UNFENCED})
_DISK: Final = EventKind.LOG_DIR_OFFLINE
_STATES: Final = (
    ("offline", EventKind.OFFLINE, EventKind.ONLINE, Level.CRITICAL),
    ("under min ISR", EventKind.UNDER_MIN_ISR_BEGAN, EventKind.UNDER_MIN_ISR_ENDED, Level.CRITICAL),
    ("under-replicated", EventKind.UNDER_REPLICATED_BEGAN, EventKind.UNDER_REPLICATED_ENDED, Level.WARNING),
)


def timeline(row: Row, events: Sequence[EventRow], work: Sequence[Work], now: int) -> Drawing:
    """Draw an incident until it was over, or until now."""
    axis = _axis(row, now)
    work = [each._replace(until=_by(each.until, now)) for each in work if each.since <= now]
    lanes = [*_states(axis, events), *_brokers(axis, row, events, work), *_controllers(axis, events)]
    return axis.drawing(lanes)


def _axis(row: Row, now: int) -> Axis:
    end = row["closed_at"] or row["recovered_at"] or max(now, row["updated_at"])
    since, until = row["opened_at"], max(min(end, now), row["opened_at"])
    edge = max(_LEAST, int((until - since) * _EDGE))
    return Axis(since - edge, until + (edge if until < now else 0))


def _by(moment: int | None, now: int) -> int | None:
    return None if moment is None or moment > now else moment


def _states(axis: Axis, events: Sequence[EventRow]) -> Iterator[Lane]:
    """Yield a lane for each state that partitions were in: when at least one was, and how many at most."""
    for name, begin, end, level in _STATES:
        inside, since, most = set[tuple[str | None, int | None]](), 0, 0
        bands: list[Band] = []
        for event in events:
            partition = event.topic, event.partition
            if event.event == begin:
                since = since if inside else event.occurred_not_after
                inside.add(partition)
                most = max(most, len(inside))
            elif event.event == end and partition in inside:
                inside.remove(partition)
                if not inside:
                    bands.append(axis.band(since, event.occurred_not_after, level))
        if inside:
            bands.append(axis.band(since, None, level))
        if bands:
            yield Lane(f"partitions of the cluster newly {name}, at most {most:,}", tuple(bands))
    elections = [event for event in events if event.event == EventKind.UNCLEAN_ELECTION]
    if elections:
        yield Lane("unclean elections", marks=_marks(axis, elections, Level.CRITICAL))


def _controllers(axis: Axis, events: Iterable[EventRow]) -> Iterator[Lane]:
    changes = [event for event in events if event.event == EventKind.CONTROLLER_CHANGE]
    if changes:
        yield Lane("another controller takes over", marks=_marks(axis, changes, Level.INFO))


def _brokers(axis: Axis, row: Row, events: Sequence[EventRow], work: Sequence[Work]) -> Iterator[Lane]:
    """Yield a lane for each broker: its announced work, when it was down, when it left ISRs; suspects first."""
    suspects = [each["broker"] for each in row["suspects"] or () if each["score"]]
    numbers = [*dict.fromkeys([*suspects, *(row["brokers"] or ()), *(each.broker for each in work), *_moved(events)])]
    level, away = level_of_incident(row), absences(events)
    for number in numbers[:BROKERS_SHOWN]:
        announced = [each for each in work if each.broker == number]
        bands = [axis.band(each.since, each.until, "work") for each in announced]
        down = [axis.band(each.since or axis.since, each.until, level) for each in away.get(number, ())]
        left = [event for event in events if number in event.left_isr]
        joined = [event for event in events if number in event.joined_isr]
        failed = [event for event in events if event.event_broker == number and event.event == _DISK]
        label = ", ".join(
            (
                f"broker {number}",
                *(f"work announced: {each.text}" for each in announced[:1]),
                *(["down (bar)"] if down else []),
                *(
                    [" and ".join(compress(("leaves ISRs (\u25b2)", "is back (\u2714)"), (left, joined)))]
                    * bool(left or joined)
                ),
                *(["loses a log directory (\u2716)"] if failed else []),
            )
        )
        marks = (
            *_marks(axis, left, Level.WARNING), *_marks(axis, joined, Level.HEALTHY),
            *_marks(axis, failed, Level.CRITICAL),
        )  # fmt: skip
        yield Lane(label, (*bands, *down), marks)
    if numbers[BROKERS_SHOWN:]:
        yield Lane(f"and {count(len(numbers) - BROKERS_SHOWN, 'more broker')}, which the lines below name")


def _moved(events: Iterable[EventRow]) -> Iterator[int]:
    """Yield the brokers that something happened to, whichever incident that is of."""
    for event in events:
        if event.event_broker is not None and event.event in {*_DOWN, _DISK}:
            yield event.event_broker
        yield from event.left_isr


class DownTime(NamedTuple):
    """Time in which a broker was down; ``since`` None: since before the events, ``until`` None: to their end."""

    since: int | None
    until: int | None


def absences(events: Iterable[EventRow]) -> dict[int, list[DownTime]]:
    """Return when each broker was down, as far as events say."""
    away: defaultdict[int, list[DownTime]] = defaultdict(list)
    up: set[int] = set()
    for event in events:
        number, at = event.event_broker, event.occurred_not_after
        if number is None:
            continue
        is_down = bool(away[number]) and away[number][-1].until is None
        if event.event in _DOWN and not is_down:
            away[number].append(DownTime(at, None))
        elif event.event in _UP and is_down:
            away[number][-1] = away[number][-1]._replace(until=at)
        elif event.event in _UP and number not in up:
            away[number].append(DownTime(None, at))
        if event.event in {*_DOWN, *_UP}:
            up.add(number)
    return {number: each for number, each in away.items() if each}


def _marks(axis: Axis, events: Iterable[EventRow], level: Level) -> tuple[TimeMark, ...]:
    """Return a mark for each place on the axis, however many events are there."""
    places = dict.fromkeys(round(axis.at(event.occurred_not_after), 1) for event in events)
    return tuple(TimeMark(at, level) for at in places)
