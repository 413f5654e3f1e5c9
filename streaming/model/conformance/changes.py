"""Partition changes between two registration records, told by them and by each other.

An action on a broker writes one change for each partition it concerns, no more and no less: those after the record
that opens it, or those before the record that closes it. What is left stands alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import TopicPartition
from streaming.contracts.records import MetadataRecord, PartitionChange
from streaming.model.conformance.actions import Action, Alternative, Departure
from streaming.model.conformance.replay import Refused
from streaming.model.conformance.steps import ALONE, Case, Match, Reason, closed_by, match, opened_by, would_write
from streaming.model.controller.partition import Transition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streaming.model.conformance.replay import Replay


class Stretch(NamedTuple):
    """Partition changes that follow one another, and the records on either side."""

    opening: MetadataRecord | None
    opened_at: int
    changes: tuple[PartitionChange, ...]
    closing: MetadataRecord | None

    @property
    def begins_at(self) -> int:
        """Offset of the first change."""
        return self.opened_at + 1


def stretches(base_offset: int, records: Iterable[MetadataRecord]) -> Iterator[Stretch]:
    """Cut a batch at every record that is no partition change."""
    opening, opened_at, changes = None, base_offset - 1, list[PartitionChange]()
    offset = base_offset
    for offset, record in enumerate(records, start=base_offset):
        if isinstance(record, PartitionChange):
            changes.append(record)
        else:
            yield Stretch(opening, opened_at, tuple(changes), record)
            opening, opened_at, changes = record, offset, []
    yield Stretch(opening, opened_at, tuple(changes), None)


@dataclass(slots=True)
class Changes:
    """Explains stretches, one after the other, and applies them.

    Attributes:
        actions: what was explained.
        departures: what was not.
    """

    replay: Replay
    actions: list[Action] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)

    def explain(self, stretch: Stretch) -> int:
        """Explain and apply every change; give how many belong to the record that closes the stretch."""
        first = self._opened(stretch)
        cases = [
            (offset, record, case)
            for offset, record in enumerate(stretch.changes[first:], start=stretch.begins_at + first)
            if (case := self._apply(offset, record)) is not None
        ]
        closing = self._closed(stretch, cases)
        for offset, record, case in cases[: len(cases) - closing]:
            self._alone(offset, record, case)
        return closing

    def _apply(self, offset: int, record: PartitionChange) -> Case | None:
        key, registry = TopicPartition(record.topic_id, record.partition), self.replay.registry
        before = registry.partitions.get(key)
        try:
            self.replay.apply(record)
        except Refused as why:
            self.departures.append(Departure(offset, record, str(why)))
            return None
        assert before is not None  # noqa: S101 - replay refuses what is unknown
        return Case(key, registry.topics[key.topic_id], before, registry.partitions[key])

    def _opened(self, stretch: Stretch) -> int:
        """Take the changes that belong to the record before them; give how many."""
        reason = opened_by(stretch.opening)
        if reason is None or stretch.opening is None:
            return 0
        taken = 0
        for offset, record in enumerate(stretch.changes, start=stretch.begins_at):
            found = self._belongs(reason, record)
            if found is None:
                break
            case = self._apply(offset, record)
            if case is not None:
                self._note(offset, case, reason, found.causes)
            taken += 1
        self._complete(reason, stretch.opened_at, stretch.opening)
        return taken

    def _belongs(self, reason: Reason, record: PartitionChange) -> Match | None:
        key = TopicPartition(record.topic_id, record.partition)
        before = self.replay.registry.partitions.get(key)
        if before is None:
            return None
        case = Case(key, self.replay.registry.topics[key.topic_id], before, before)
        found = match(self.replay, reason, case, record)
        return found if isinstance(found, Match) else None

    def _closed(self, stretch: Stretch, cases: Sequence[tuple[int, PartitionChange, Case]]) -> int:
        """Take the changes that belong to the record after them; give how many."""
        if stretch.closing is None:
            return 0
        runs = [(reason, tuple(self._run_before(reason, cases))) for reason in closed_by(stretch.closing)]
        if not runs:
            return 0
        best = max(map(self._fit, runs))
        (chosen, run), *others = [it for it in runs if self._fit(it) == best]
        for number, (offset, case, found) in enumerate(run):
            causes = dict.fromkeys(
                (*found.causes, *(cause for _, other in others for cause in other[number][2].causes))
            )
            self._note(offset, case, chosen, tuple(causes))
        self._complete(chosen, stretch.begins_at + len(stretch.changes), stretch.closing)
        return len(run)

    def _fit(self, it: tuple[Reason, Sequence[object]]) -> tuple[bool, int]:
        """Judge how well an action explains what stands before its record: whether all is there, then how much."""
        reason, run = it
        return not any(self._missing(reason)), len(run)

    def _run_before(
        self, reason: Reason, cases: Sequence[tuple[int, PartitionChange, Case]]
    ) -> Iterator[tuple[int, Case, Match]]:
        for offset, record, case in reversed(cases):
            found = match(self.replay, reason, case, record)
            if not isinstance(found, Match):
                return
            yield offset, case, found

    def _complete(self, reason: Reason, at: int, record: MetadataRecord) -> None:
        missing = tuple(self._missing(reason))
        if missing:
            self.departures.append(Departure(at, record, f"{reason.name} {reason.broker} lacks changes", (), missing))

    def _missing(self, reason: Reason) -> Iterator[PartitionChange]:
        """Give the changes that an action still would write, whatever the configuration."""
        registry = self.replay.registry
        for key in reason.members(registry):
            state = registry.partitions[key]
            case = Case(key, registry.topics[key.topic_id], state, state)
            wanted = [record for record, _ in would_write(self.replay, reason, case)]
            if wanted and None not in wanted:
                yield next(record for record in wanted if record is not None)

    def _alone(self, offset: int, record: PartitionChange, case: Case) -> None:
        considered: list[Alternative] = []
        for reason in ALONE:
            found = match(self.replay, reason, case, record)
            if isinstance(found, Match):
                self._note(offset, case, reason, found.causes)
                return
            considered.append(found)
        self.departures.append(Departure(offset, record, "no action explains", tuple(considered)))

    def _note(self, offset: int, case: Case, reason: Reason, causes: tuple[Cause, ...]) -> None:
        subject = f"{case.topic.topic}-{case.key.partition}"
        step = Transition(case.topic, case.key, case.before, case.after, causes[0] if causes else Cause.UNKNOWN)
        self.actions.append(Action(offset, reason.name, subject, reason.broker, causes, step))
