"""Everything that the monitor of a polled play met, in order; and whether two histories gave the same answers.

Two histories answer alike if everything that can be told of the brokers changes in the same order to the same values,
and at the same times but for what chance adds. Whatever a client cannot rely on is left out: which broker is named as
the controller, on which second of its period a question is asked, and how many records were written meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streaming.contracts.identifiers import Micros
from streaming.sources.polling.inference.inquiry import Ask, Meeting, Met, Presence, QuorumLeader
from streaming.sources.polling.metadata import TimedView
from streaming.sources.polling.view import PartitionView

TOLERANCE: Final = 2.0
"""Seconds by which the same change may be seen earlier or later: a heartbeat's period, and that of the questions."""
BUDGET_SECONDS: Final = 10
_SECOND: Final = 1_000_000

Subject = tuple[str, ...]
"""What a value is of: a listener, a broker's list of brokers, the quorum, a partition."""


class Entry(NamedTuple):
    """One thing that was met; seconds of the play."""

    at: float
    asked: float
    by: str
    how: str
    said: str

    def line(self) -> str:
        return f"{self.at:9.3f}  asked {self.asked:9.3f}  {self.by:28} {self.how:12} {self.said}"


class Change(NamedTuple):
    """The value of a subject from a time on."""

    at: float
    subject: Subject
    value: str


@dataclass(slots=True)
class Transcript:
    """What a monitor met.

    Attributes:
        entries: everything, if ``is_whole``.
        changes: of every subject, in order.
        views: seconds of each accepted view.
        partitions: what was seen of each, by topic and number; whenever it was another than before.
    """

    origin: Micros
    is_whole: bool = False
    entries: list[Entry] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    views: list[float] = field(default_factory=list)
    partitions: dict[tuple[str, int], list[tuple[float, PartitionView]]] = field(default_factory=dict)
    _asked: Counter[tuple[int, int]] = field(default_factory=Counter)
    _values: dict[Subject, str] = field(default_factory=dict)

    def _seconds(self, at: Micros) -> float:
        return (at - self.origin) / _SECOND

    def met(self, met: Met) -> None:
        """Write down the end of a question."""
        at = self._seconds(met.ended)
        if met.how not in {Meeting.SILENT, Meeting.REFUSED, Meeting.UNREACHABLE}:
            self._asked[met.question.broker, int(self._seconds(met.asked) // BUDGET_SECONDS)] += 1
        if self.is_whole:
            by = f"{met.question.ask} of {met.question.broker} #{met.connection}"
            self.entries.append(Entry(at, self._seconds(met.asked), by, str(met.how), said(met)))
        for subject, value in facts(met):
            self._note(at, subject, value)
        if met.question.ask is Ask.PARTITIONS and met.content is not None:
            self._see(at, met.content)  # type: ignore[arg-type]

    def viewed(self, view: TimedView | None, now: Micros) -> None:
        """Write down a view of the whole metadata; None: nobody answered."""
        at = self._seconds(now)
        if view is None:
            self._note(at, ("views",), "nobody answers")
            if self.is_whole:
                self.entries.append(Entry(at, at, "metadata", "failed", ""))
            return
        self.views.append(at)
        self._note(at, ("views",), "answered")
        topics = view.view.topics
        if self.is_whole:
            by = f"metadata of {view.view.answered_by}"
            listed = f"brokers {sorted(view.view.brokers)}; degraded {_degraded(topics)}"
            self.entries.append(Entry(at, self._seconds(view.began), by, "answered", listed))
        self._see(at, topics)

    def _see(self, at: float, topics: Mapping[str, Mapping[int, PartitionView]]) -> None:
        for topic, parts in topics.items():
            for number, part in parts.items():
                seen = self.partitions.setdefault((topic, number), [])
                if not seen or seen[-1][1] != part._replace(reassignment=seen[-1][1].reassignment):
                    seen.append((at, part))
                    value = repr((part.leader, part.leader_epoch, part.isr, part.replicas, part.elr, part.offline))
                    self._note(at, ("partition", topic, str(number)), value)

    @property
    def most_asked(self) -> float:
        """Return the most questions a second to one broker, over ``BUDGET_SECONDS``."""
        return max(self._asked.values(), default=0) / BUDGET_SECONDS

    def _note(self, at: float, subject: Subject, value: str) -> None:
        if self._values.get(subject) != value:
            self._values[subject] = value
            self.changes.append(Change(at, subject, value))

    def lines(self) -> Iterator[str]:
        """Give the transcript for a person, in order."""
        yield from (entry.line() for entry in sorted(self.entries, key=lambda entry: entry.at))

    def summary(self) -> Iterator[str]:
        """Give what changed, for a person."""
        yield from (f"{at:9.3f}  {' '.join(subject):32} {value}" for at, subject, value in self.changes)


def said(met: Met) -> str:
    """Write an answer in one line."""
    content = met.content
    if content is None:
        return f"error {met.error}" if met.error else ""
    if isinstance(content, Presence):
        fenced = "unknown" if content.fenced is None else sorted(content.fenced)
        return f"unfenced {sorted(content.unfenced)}, fenced {fenced}"
    if isinstance(content, QuorumLeader):
        return f"leader {content.leader}, epoch {content.epoch}"
    if met.question.ask is Ask.PARTITIONS:
        return _degraded(content)  # type: ignore[arg-type]
    return ", ".join(f"{topic}-{number}: {end}" for (topic, number), end in content.items())  # type: ignore[union-attr,str-unpack,misc]


def _degraded(topics: Mapping[str, Mapping[int, PartitionView]]) -> str:
    worst = [
        f"{topic}-{number} leader {part.leader} epoch {part.leader_epoch} ISR {list(part.isr)} of {list(part.replicas)}"
        for topic, parts in topics.items()
        for number, part in parts.items()
        if part.is_degraded or part.leader < 0
    ]
    return f"{len(worst)}: " + "; ".join(worst[:6])


def facts(met: Met) -> Iterator[tuple[Subject, str]]:
    """Give what an outcome says, by subject."""
    broker = str(met.question.broker)
    if met.question.ask is Ask.PRESENCE or met.how in {Meeting.REFUSED, Meeting.CLOSED, Meeting.UNREACHABLE}:
        yield ("listener", broker), str(met.how)
    if isinstance(met.content, Presence):
        fenced = None if met.content.fenced is None else sorted(met.content.fenced)
        yield ("listed by", broker), f"{sorted(met.content.unfenced)} {fenced}"
    elif isinstance(met.content, QuorumLeader):
        yield ("quorum",), f"{met.content.leader} {met.content.epoch}"


def difference(one: Transcript, other: Transcript, tolerance: float = TOLERANCE) -> str | None:
    """Return the first thing by which two transcripts can be told apart; None: they answer alike."""
    ours, theirs = _by_subject(one), _by_subject(other)
    found: list[tuple[float, str]] = []
    for subject in {**ours, **theirs}:
        name = " ".join(subject)
        mine, its = ours.get(subject, []), theirs.get(subject, [])
        for first, second in zip(mine, its, strict=False):
            if first.value != second.value:
                found.append((min(first.at, second.at), f"{name}: {first.value} and {second.value}"))
                break
            if abs(first.at - second.at) > tolerance:
                when = f"at {first.at:.1f} s and at {second.at:.1f} s"
                found.append((min(first.at, second.at), f"{name} became {first.value} {when}"))
                break
        else:
            rest = [*mine[len(its) :], *its[len(mine) :]]
            found += [(each.at, f"{name} became {each.value} in one of them alone") for each in rest[:1]]
    return None if not found else "{:.1f} s: {}".format(*min(found))


def _by_subject(of: Transcript) -> dict[Subject, list[Change]]:
    changes: dict[Subject, list[Change]] = {}
    for change in of.changes:
        changes.setdefault(change.subject, []).append(change)
    return changes
