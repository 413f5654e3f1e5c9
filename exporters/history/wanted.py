"""Which events somebody wants to see: one rule for a row in memory, and its twin that Delta prunes files by.

Knows column names and values. That both select the same rows is a test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from exporters.history.moments import day_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What must hold of an event; an empty field wants everything.

    Attributes:
        clusters: names or ids.
        topics: names, ``*`` and ``?`` as in a shell.
        partitions: numbers.
        brokers: who left or joined the ISR, leads or led, or is what the event is about.
        causes: causes.
        events: kinds.
        since: UTC microseconds; an event counts at its latest moment.
        until: the same; both bounds belong to it.
        collected_since: when the source saw it, at the earliest.
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

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row of ``replication_events``, times in microseconds, is wanted."""
        return (
            (not self.clusters or row["cluster"] in self.clusters or row["cluster_id"] in self.clusters)
            and (not self.topics or _is_named(row["topic"], self.topics))
            and (not self.partitions or row["partition"] in self.partitions)
            and (not self.brokers or bool(brokers_of(row) & set(self.brokers)))
            and (not self.causes or row["cause"] in self.causes)
            and (not self.events or row["event"] in self.events)
            and (self.since is None or row["occurred_not_after"] >= self.since)
            and (self.until is None or row["occurred_not_after"] <= self.until)
            and (self.collected_since is None or row["collected_at"] >= self.collected_since)
        )

    def sql(self) -> str:
        """Write the same rule for DataFusion; the days in it leave whole folders unread."""
        clauses = [
            _any(_is_one_of("cluster", self.clusters), _is_one_of("cluster_id", self.clusters)),
            _any(*(_like("topic", glob) for glob in self.topics)),
            _any(_is_one_of("partition", self.partitions)),
            _any(*(_concerns(broker) for broker in self.brokers)),
            _any(_is_one_of("cause", self.causes)),
            _any(_is_one_of("event", self.events)),
            *_bound(">=", self.since),
            *_bound("<=", self.until),
            "" if self.collected_since is None else f"collected_at >= {_moment(self.collected_since)}",
        ]
        return " AND ".join(clause for clause in clauses if clause) or "true"


def brokers_of(row: Mapping[str, Any]) -> set[int]:
    """Name the brokers that an event concerns."""
    alone = {row["event_broker"], row["leader_before"], row["leader_after"]}
    return (alone | {*(row["left_isr"] or ()), *(row["joined_isr"] or ())}) - {None}


def is_wanted_topic(topic: str | None, globs: Iterable[str]) -> bool:
    """Tell whether a topic is meant by one of the globs; without one, every topic is."""
    globs = tuple(globs)
    return not globs or _is_named(topic, globs)


def _is_named(topic: str | None, globs: tuple[str, ...]) -> bool:
    return topic is not None and any(fnmatchcase(topic, _plain(glob)) for glob in globs)


def _plain(glob: str) -> str:
    """Take brackets as they are: only ``*`` and ``?`` mean something."""
    return glob.replace("[", "[[]")


def _concerns(broker: int) -> str:
    alone = (f"{column} = {broker}" for column in ("event_broker", "leader_before", "leader_after"))
    lists = (f"array_has({column}, {broker})" for column in ("left_isr", "joined_isr"))
    return _any(*alone, *lists)


def _like(column: str, glob: str) -> str:
    if not re.search(r"[*?]", glob):
        return f"{column} = {_literal(glob)}"
    pattern = "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in glob)
    return f"regexp_like({column}, {_literal(f'^(?s:{pattern})$')})"


def _is_one_of(column: str, values: tuple[str, ...] | tuple[int, ...]) -> str:
    return f"{column} IN ({', '.join(map(_literal, values))})" if values else ""


def _bound(comparison: str, micros: int | None) -> tuple[str, ...]:
    if micros is None:
        return ()
    return f"date {comparison} DATE '{day_of(micros)}'", f"occurred_not_after {comparison} {_moment(micros)}"


def _moment(micros: int) -> str:
    return f"arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _any(*clauses: str) -> str:
    told = [clause for clause in clauses if clause]
    return f"({' OR '.join(told)})" if told else ""


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
