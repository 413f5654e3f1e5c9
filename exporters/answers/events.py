"""Recorded events as an answer: the newest, those before one that was shown, or those that were committed since."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.answers.answer import Answer, AsOf, Row, Sentence, Tone, read_time
from exporters.answers.subject import past_of
from exporters.read_model.event_filter import EventFilter, EventKey, key_of
from exporters.read_model.incident_archive import read_names
from exporters.read_model.recorded_events import COLUMNS, added_events, history
from exporters.read_model.times import Clock, Version, read_moment
from exporters.read_model.unreadable import UnreadableTables
from exporters.read_model.versions import checked_version
from streaming.contracts.events import Cause, EventKind
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import ChangesRestarted
from streaming.delta.log.table_log import newest_version
from streaming.errors import ConfigurationError
from streaming.name_patterns import is_exclusion, patterns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporters.answers.answer import Question
    from exporters.answers.subject import Tables

NAME: Final = "events"
HELP: Final = "Recorded events, oldest first; of more than the limit the newest."
FILTERS: Final[Mapping[str, str]] = {
    "topic": "Topic name, or a pattern.",
    "partition": "Partition number.",
    "broker": "Id of a broker that left or joined the ISR, led or leads, or that the event is about.",
    "cause": f"Cause of the event: {', '.join(Cause)}.",
    "event": f"Kind of event: {', '.join(EventKind)}.",
    "since": "Only those that occurred at this time or later: 15m, 2h, 2026-03-01T10:30:00Z.",
    "until": "Only those that occurred at this time or before.",
    "limit": "At most so many.",
    "before": "Only those that come before this key of an event (time, offset, id): the page before.",
    "after": "Only those that were committed after this version of partition_changes; all of them.",
    "of_table": "Id of the partition_changes that the version is of: of another one there is no such version.",
}
"""Every filter with its help."""
VALUES: Final[Mapping[str, tuple[str, ...]]] = {"cause": tuple(Cause), "event": tuple(EventKind)}
"""Filters with a closed set of values."""
NUMBERS: Final = frozenset({"partition", "broker", "limit", "after"})
"""Filters whose values are whole numbers."""
LIMIT: Final = 100
LARGEST_LIMIT: Final = 10_000
_FARTHEST: Final = 10_000
"""Versions by which one who follows may be behind."""


def answer(tables: Tables, question: Question) -> Answer:
    """Answer with events; a limit of 0 is none.

    Raises:
        ConfigurationError: a filter has a value that it cannot have.
        ChangesRestarted: what was committed after a version cannot be said.
    """
    chosen, newest = Chosen.of(tables, question), newest_version(tables.folder / PARTITION_CHANGES.name)
    if after := question.filters.get("after"):
        of_table = question.filters.get("of_table", (None,))[-1]
        return _added(tables, _whole("after", after[-1]), newest, chosen.selection, of_table)
    unreadable = UnreadableTables()
    limit = _whole("limit", question.filters.get("limit", (str(LIMIT),))[-1])
    rows = [*chosen.newest(tables, limit or None, unreadable)]
    why = {NAME: "; ".join(unreadable.sentences)} if unreadable.sentences else {}
    return replace(_answer(tables, rows, [], newest), as_of=chosen.as_of, unreadable=why)


class Chosen(NamedTuple):
    """Events that a question selects; of the past what had occurred by then."""

    selection: EventFilter
    as_of: AsOf | None

    @classmethod
    def of(cls, tables: Tables, question: Question) -> Chosen:
        """Read a question; ``ConfigurationError``: a value is none that its filter, or the moment, can have."""
        clock = Clock(tables.now)
        selection = selection_of(question, clock)
        if question.clusters:
            selection = replace(selection, clusters=_of_names_now(tables, question.clusters))
        if question.at is None:
            return cls(selection, None)
        then = _then(tables, question.at, clock)
        if then.version is None and (selection.until is None or selection.until > then.moment):
            selection = replace(selection, until=then.moment)
        return cls(selection, then)

    def newest(self, tables: Tables, limit: int | None, unreadable: UnreadableTables) -> Iterator[Row]:
        """Read the newest events, oldest first; None is no limit."""
        version = None if self.as_of is None else self.as_of.version
        return history(tables.folder, self.selection, unreadable, limit=limit, as_of=version)


def _added(tables: Tables, after: int, newest: int, selection: EventFilter, of_table: str | None) -> Answer:
    if newest - after > _FARTHEST:
        raise ChangesRestarted(f"{newest - after:,} versions came since the last look")
    added = added_events(tables.folder, after, selection, of_table)
    left_out = len(added.rows) - LARGEST_LIMIT
    said = [Sentence(f"{left_out:,} events came at once and are left out", Tone.WARNING)] if left_out > 0 else []
    answered = _answer(tables, added.rows[-LARGEST_LIMIT:], said, added.version)
    return replace(answered, table_id=added.table_id)


def _answer(tables: Tables, rows: list[Row], said: list[Sentence], version: int) -> Answer:
    return Answer(columns=COLUMNS, rows=rows, sentences=said, clusters=[], now=tables.now, version=version)


def _then(tables: Tables, at: str, clock: Clock) -> AsOf:
    """Return the version that was given, or the moment, which the tables must be able to show."""
    moment = read_moment(at, clock.now)
    if isinstance(moment, Version):
        return AsOf(clock.now, checked_version(tables.folder, moment.number))
    past_of(tables).check(moment)
    return AsOf(moment)


def _of_names_now(tables: Tables, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns with the ids of clusters that they choose by the names of now: events have that of then."""
    if tables.snapshot is not None:
        names = {cluster_id: each.name for cluster_id, each in tables.snapshot.clusters.items()}
    else:
        names = read_names(tables.folder, UnreadableTables())
    ids = [
        f"!{cluster_id}" if is_exclusion(pattern) else cluster_id
        for pattern in patterns
        for cluster_id, name in names.items()
        if patterns_of(pattern.removeprefix("!") if is_exclusion(pattern) else pattern)(name)
    ]
    return (*patterns, *ids)


def selection_of(question: Question, clock: Clock) -> EventFilter:
    """Return what a question selects.

    Raises:
        ConfigurationError: a value is none that its filter can have.
    """
    given = question.filters
    for name in given:
        if name not in FILTERS:
            raise ConfigurationError(f"events have no filter {name}; there are {', '.join(FILTERS)}")
    return EventFilter(
        clusters=question.clusters,
        topics=given.get("topic", ()),
        partitions=tuple(_wholes("partition", given)),
        brokers=tuple(_wholes("broker", given)),
        causes=_one_of("cause", given),
        events=_one_of("event", given),
        since=read_time("since", given, clock),
        until=read_time("until", given, clock),
        before=_key(given["before"][-1]) if given.get("before") else None,
    )


def key_text(row: Mapping[str, Any]) -> str:
    """Return the key of an event as the filter ``before`` takes it."""
    at, offset, event_id = key_of(row)
    return f"{at},{offset},{event_id}"


def _key(text: str) -> EventKey:
    at, _, rest = text.partition(",")
    offset, _, event_id = rest.partition(",")
    if not event_id:
        raise ConfigurationError(f"before is {text!r}; give the key of an event: time, offset, id")
    return _whole("before", at), -1 if offset == "-1" else _whole("before", offset), event_id


def _wholes(name: str, given: Mapping[str, tuple[str, ...]]) -> Iterator[int]:
    return (_whole(name, text) for text in given.get(name, ()))


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(2**63)) - 1):
        raise ConfigurationError(f"{name} is {text!r}; give a whole number")
    return int(text)


def _one_of(name: str, given: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    for text in given.get(name, ()):
        if text not in VALUES[name]:
            raise ConfigurationError(f"{name} is {text!r}; use one of {', '.join(VALUES[name])}")
    return given.get(name, ())
