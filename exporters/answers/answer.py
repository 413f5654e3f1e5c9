"""A question about clusters, and its answer: the same value whether it is read from tables here or served over HTTP.

A subject (brokers, topics, groups, ...) answers with rows and sentences. Everything that needs a table is in the
answer, so what prints it, or makes a page of it, reads nothing. Times in rows are UTC microseconds, None is unknown; in
sentences they are UTC and say so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.escapes import json_text
from streaming.name_patterns import is_exclusion, patterns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from exporters.read_model.times import Clock

Row = dict[str, Any]
VERSION_HEADER: Final = "Isrwatch-Version"
"""The header of every response of an exporter's API: which program answered."""
_LISTED: Final = 10


class Tone(StrEnum):
    """Weight of a sentence."""

    PLAIN = "plain"
    NOTE = "note"
    WARNING = "warning"
    CRITICAL = "critical"


class Sentence(NamedTuple):
    """Remark on the rows: a reason, advice, or why there are none."""

    text: str
    tone: str = Tone.NOTE.value


class ClusterFreshness(NamedTuple):
    """Age of the state of a cluster, in seconds; None before it was observed."""

    name: str
    id: str
    age: float | None
    is_stale: bool


class AsOf(NamedTuple):
    """Moment in the past that an answer is of, UTC microseconds, and the version of the changes if one was asked."""

    moment: int
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """Question to a subject.

    Attributes:
        clusters: patterns of names or ids; none is all.
        filters: patterns by the name of a filter of the subject; without any, everything is chosen.
        everything: include what is healthy.
        at: a moment of the past, as a user writes it; None is now.
    """

    clusters: tuple[str, ...] = ()
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    everything: bool = False
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer of a subject.

    Attributes:
        columns: the keys of every row, in order.
        rows: column to value, of JSON's types.
        sentences: in order.
        clusters: that were asked about, by name.
        now: UTC microseconds by the clock of who answered.
        as_of: the moment of the past; None is the present.
        unreadable: why a table could not be read, by its name; what it would add is missing.
        version: of the changes up to which it is complete; None where that does not matter.
        table_id: of the table of changes that has this version; None where that is unknown.
    """

    columns: tuple[str, ...]
    rows: list[Row]
    sentences: list[Sentence]
    clusters: list[ClusterFreshness]
    now: int
    as_of: AsOf | None = None
    unreadable: dict[str, str] = field(default_factory=dict)
    version: int | None = None
    table_id: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {
            "columns": self.columns,
            "rows": self.rows,
            "sentences": [each._asdict() for each in self.sentences],
            "clusters": [each._asdict() for each in self.clusters],
            "now": self.now,
            "as_of": None if self.as_of is None else self.as_of._asdict(),
            "unreadable": self.unreadable,
            "version": self.version,
            "table_id": self.table_id,
        }

    def to_json(self) -> str:
        """Return the answer as one line of JSON, from which :meth:`from_json` makes an equal one."""
        return json_text(self.document(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Answer:
        """Read an answer.

        Raises:
            ValueError: the text is no answer.
        """
        return cls.of_document(json.loads(text))

    @classmethod
    def of_document(cls, read: Mapping[str, Any]) -> Answer:
        """Return the answer of a document of :meth:`document`, whatever else it holds.

        Raises:
            ValueError: it is none.
        """
        try:
            return cls(
                columns=tuple(read["columns"]),
                rows=[dict(row) for row in read["rows"]],
                sentences=[Sentence(**each) for each in read["sentences"]],
                clusters=[ClusterFreshness(**each) for each in read["clusters"]],
                now=int(read["now"]),
                as_of=None if read["as_of"] is None else AsOf(**read["as_of"]),
                unreadable=dict(read["unreadable"]),
                version=read["version"],
                table_id=read.get("table_id"),  # of an older program none
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an answer: {error!r}") from error


class ServerRefused(ConfigurationError):
    """The address, the certificate or the login is wrong, or what is there is no isrwatch: no later try helps."""


class ServerUnavailable(ConnectionRefused):
    """The server cannot be reached, or cannot answer now."""


class AnswersRestarted(ConnectionRefused):
    """End of what was followed: it is not there any more, and is to be read from its beginning."""


class UnknownName(ConfigurationError):
    """Nothing has a name that is asked for."""


def refuse_unknown(given: Iterable[str] | None, existing: Iterable[str], what: str) -> None:
    """Refuse a name or pattern that fits nothing: an empty answer would look like a healthy one.

    A pattern that leaves out may leave out nothing; ``what`` is the word for one of them.

    Raises:
        UnknownName: a name, or a pattern, fits nothing; the sentence lists the first of what there is.
    """
    names = sorted(set(existing))
    for pattern in given or ():
        if not is_exclusion(pattern) and not any(map(patterns_of(pattern), names)):
            listed = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
            raise UnknownName(f"unknown {what} {pattern}; known: {listed or 'none'}")


def read_time(name: str, given: Mapping[str, tuple[str, ...]], clock: Clock) -> int | None:
    """Return the time that a filter has, UTC microseconds; None if it is not given.

    Raises:
        ConfigurationError: it is none; the sentence names the filter.
    """
    if not given.get(name):
        return None
    try:
        return clock.read(given[name][-1])
    except ConfigurationError as error:
        raise ConfigurationError(f"{name} is {given[name][-1]!r}; {error}") from None
