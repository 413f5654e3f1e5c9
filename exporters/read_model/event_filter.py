"""Selects events: a predicate on a row in memory, and the same predicate in SQL, with which Delta skips files.

Knows column names and values. A property test compares both predicates on the same rows.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.events import brokers_of
from streaming.name_patterns import expression_of, is_exclusion, patterns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST: Final = 253_402_300_799_000_000
"""The last second that has a date of four digits."""


EventKey = tuple[int, int, str]
"""Place of an event in the order of all: when it occurred, its offset in the log or -1, its id."""


def key_of(row: Mapping[str, Any]) -> EventKey:
    """Return the key by which events are ordered."""
    offset = row["offset"]
    return row["occurred_not_after"], -1 if offset is None else offset, row["event_id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """The conditions an event must meet; an empty field is no condition.

    Attributes:
        clusters: patterns of names or ids.
        topics: patterns of names.
        partitions: numbers.
        brokers: that left or joined the ISR, led or lead, or are the subject of the event.
        causes: causes.
        events: kinds of event.
        since: UTC microseconds, inclusive, compared with the upper bound of the event's time.
        until: the same, inclusive.
        collected_since: UTC microseconds, inclusive, compared with the time at which the source collected it.
        before: only events that come before the one with this key, in the order of :func:`key_of`.
        after: only those behind it.
    """

    clusters: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    brokers: tuple[int, ...] = ()
    causes: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    collected_since: int | None = None
    before: EventKey | None = None
    after: EventKey | None = None

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row of ``replication_events``, times in microseconds, is selected."""
        return (
            (not self.clusters or patterns_of(*self.clusters)(row["cluster"], row["cluster_id"]))
            and matches_topic(row["topic"], self.topics)
            and (not self.partitions or row["partition"] in self.partitions)
            and (not self.brokers or bool(brokers_of(row) & set(self.brokers)))
            and (not self.causes or row["cause"] in self.causes)
            and (not self.events or row["event"] in self.events)
            and (self.since is None or row["occurred_not_after"] >= self.since)
            and (self.until is None or row["occurred_not_after"] <= self.until)
            and (self.collected_since is None or row["collected_at"] >= self.collected_since)
            and (self.before is None or key_of(row) < self.before)
            and (self.after is None or key_of(row) > self.after)
        )

    def sql(self) -> str:
        """Return the same predicate for DataFusion; its conditions on ``date`` skip whole folders."""
        clauses = [
            *_chosen(("cluster", "cluster_id"), self.clusters),
            *_chosen(("topic",), self.topics),
            _any(_is_one_of("partition", self.partitions)),
            _any(*(_concerns(broker) for broker in self.brokers)),
            _any(_is_one_of("cause", self.causes)),
            _any(_is_one_of("event", self.events)),
            *_bound(">=", self.since),
            *_bound("<=", self.until),
            "" if self.collected_since is None else f"collected_at >= {_timestamp(self.collected_since)}",
            *_beyond("<", self.before),
            *_beyond(">", self.after),
        ]
        return " AND ".join(clause for clause in clauses if clause) or "true"


def matches_topic(topic: str | None, patterns: Iterable[str]) -> bool:
    """Return whether patterns choose a topic; without patterns everything is chosen, what has no topic too."""
    patterns = tuple(patterns)
    return not patterns or (topic is not None and patterns_of(*patterns)(topic))


def _concerns(broker: int) -> str:
    single = (f"{column} = {broker}" for column in ("event_broker", "leader_before", "leader_after"))
    lists = (f"array_has({column}, {broker})" for column in ("left_isr", "joined_isr"))
    return _any(*single, *lists)


def _chosen(columns: tuple[str, ...], patterns: tuple[str, ...]) -> Iterator[str]:
    """Yield what patterns ask of some columns: one is included in any of them, and none is excluded in any."""
    yield _any(*(_like(column, each) for each in patterns if not is_exclusion(each) for column in columns))
    yield from (f"NOT {_like(column, each[1:])}" for each in patterns if is_exclusion(each) for column in columns)


def _like(column: str, pattern: str) -> str:
    if not re.search(r"[*?]", pattern):
        return f"({column} = {_literal(pattern)})"
    return f"regexp_like({column}, {_literal(f'^(?s:{expression_of(pattern)})$')})"


def _is_one_of(column: str, values: tuple[str, ...] | tuple[int, ...]) -> str:
    return f"{column} IN ({', '.join(map(_literal, values))})" if values else ""


def _bound(comparison: str, micros: int | None) -> tuple[str, ...]:
    if micros is None:
        return ()
    day = (_EPOCH + dt.timedelta(microseconds=min(max(micros, 0), _LAST))).date()  # the value of the partition column
    return f"date {comparison} DATE '{day}'", f"occurred_not_after {comparison} {_timestamp(micros)}"


def _beyond(comparison: str, key: EventKey | None) -> tuple[str, ...]:
    if key is None:
        return ()
    at, offset, event_id = _timestamp(key[0]), key[1], _literal(key[2])
    log_offset = 'coalesce("offset", -1)'
    last = f"({log_offset} = {offset} AND event_id {comparison} {event_id})"
    later = f"(occurred_not_after = {at} AND ({log_offset} {comparison} {offset} OR {last}))"
    return *_bound(f"{comparison}=", key[0]), f"(occurred_not_after {comparison} {at} OR {later})"


def _timestamp(micros: int) -> str:
    return f"arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _any(*clauses: str) -> str:
    conditions = [clause for clause in clauses if clause]
    return f"({' OR '.join(conditions)})" if conditions else ""


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
