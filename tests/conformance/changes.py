"""Partition changes between two registration records, told by them and by each other.

An action on a broker writes one change for each partition it concerns, no more and no less: those after the record
that opens it, or those before the record that closes it. What is left stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import TopicPartition
from streaming.contracts.records import MetadataRecord, PartitionChange, RegisterBroker
from streaming.model.messages.registrations import Transition
from tests.conformance.actions import Action, ActionName, Alternative, Deviation, Missing
from tests.conformance.quirks import Quirk
from tests.conformance.replay import Refused, Replay
from tests.conformance.steps import ALONE, Case, Match, Reason, closed_by, match, opened_by, would_write


class Stretch(NamedTuple):
    """Partition changes that follow one another, and the records on either side."""

    opening: MetadataRecord | None
    opened_at: int
    changes: tuple[PartitionChange, ...]
    closing: MetadataRecord | None

    @property
    def begins_at(self) -> int:
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
        deviations: what was not.
    """

    replay: Replay
    actions: list[Action] = field(default_factory=list)
    deviations: list[Deviation] = field(default_factory=list)

    def explain(self, stretch: Stretch) -> int:
        """Explain and apply every change; give how many belong to the record that closes the stretch."""
        first = self._opened(stretch)
        cases = [
            (offset, record, case)
            for offset, record in enumerate(stretch.changes[first:], start=stretch.begins_at + first)
            if (case := self._apply(offset, record)) is not None
        ]
        closing = self._closed(stretch, cases)
        around = tuple(filter(None, (opened_by(stretch.opening), *closed_by(stretch.closing))))
        for offset, record, case in cases[: len(cases) - closing]:
            self._alone(offset, record, case, around)
        return closing

    def _apply(self, offset: int, record: PartitionChange) -> Case | None:
        case = self._case(TopicPartition(record.topic_id, record.partition))
        try:
            self.replay.apply(record)
        except Refused as why:
            self.deviations.append(Deviation(offset, record, self.replay.subject_of(record), str(why)))
        return None if case is None else case._replace(after=self.replay.registry.partitions[case.key])

    def _case(self, key: TopicPartition) -> Case | None:
        """Give a partition as it stands, before a record."""
        state = self.replay.registry.partitions.get(key)
        if state is None:
            return None
        topic = self.replay.registry.topics[key.topic_id]
        return Case(key, topic, self.replay.settings(topic), state, state)

    def _opened(self, stretch: Stretch) -> int:
        """Take the changes that belong to the record before them; give how many."""
        reason = opened_by(stretch.opening)
        if reason is None or stretch.opening is None:
            return 0
        taken = 0
        for offset, record in enumerate(stretch.changes, start=stretch.begins_at):
            matched = self._belongs(reason, record)
            if matched is None:
                break
            case = self._apply(offset, record)
            if case is not None:
                self._note(offset, case, matched)
            taken += 1
        self._complete(reason, stretch.opened_at, stretch.opening)
        return taken

    def _belongs(self, reason: Reason, record: PartitionChange) -> Match | None:
        case = self._case(TopicPartition(record.topic_id, record.partition))
        outcome = None if case is None else match(self.replay, reason, case, record)
        return outcome if isinstance(outcome, Match) else None

    def _closed(self, stretch: Stretch, cases: Sequence[tuple[int, PartitionChange, Case]]) -> int:
        """Take the changes that belong to the record after them; give how many."""
        if stretch.closing is None:
            return 0
        if isinstance(stretch.closing, RegisterBroker):
            # Its epoch says where its action began: what stands before is somebody else's.
            cases = [case for case in cases if case[0] >= stretch.closing.broker_epoch]
        runs = [(reason, tuple(self._run_before(reason, cases))) for reason in closed_by(stretch.closing)]
        if not runs:
            return 0
        best = max(map(self._fit, runs))
        (chosen, run), *others = [run for run in runs if self._fit(run) == best]
        for number, (offset, case, matched) in enumerate(run):
            causes = dict.fromkeys(
                (*matched.causes, *(cause for _, other in others for cause in other[number][2].causes))
            )
            self._note(offset, case, matched._replace(reason=chosen, causes=tuple(causes)))
        self._complete(chosen, stretch.begins_at + len(stretch.changes), stretch.closing)
        return len(run)

    def _fit(self, candidate: tuple[Reason, Sequence[object]]) -> tuple[bool, int]:
        """Judge how well an action explains what stands before its record: whether all is there, then how much."""
        reason, run = candidate
        return not any(self._missing(reason)), len(run)

    def _run_before(
        self, reason: Reason, cases: Sequence[tuple[int, PartitionChange, Case]]
    ) -> Iterator[tuple[int, Case, Match]]:
        for number, (offset, record, case) in reversed(tuple(enumerate(cases))):
            plain = match(self.replay, reason, case, record)
            earlier = (other for _, other, _ in cases[:number])
            outcome = plain if isinstance(plain, Match) else self._repeated(reason, record, case, earlier)
            if outcome is None:
                return
            yield offset, case, outcome

    def _repeated(
        self, reason: Reason, record: PartitionChange, case: Case, earlier: Iterable[PartitionChange]
    ) -> Match | None:
        """Let a record pass that stands before in the same words, if an index may have been left with it twice."""
        if reason.name not in {ActionName.REGISTER_BROKER, ActionName.UNREGISTER_BROKER} or reason.broker is None:
            return None
        may_be = self.replay.was_voided(reason.broker, case.key.topic_id) and record in earlier
        return Match(reason, reason.causes(case), Quirk.REPEATED_CHANGE) if may_be else None

    def _complete(self, reason: Reason, at: int, record: MetadataRecord) -> None:
        missing = tuple(self._missing(reason))
        if missing:
            subject, why = self.replay.subject_of(record), f"{reason.name} {reason.broker} lacks changes"
            self.deviations.append(Deviation(at, record, subject, why, (), missing))

    def _missing(self, reason: Reason) -> Iterator[Missing]:
        """Give the changes that an action still would write, whatever the configuration."""
        for case in filter(None, map(self._case, reason.members(self.replay.registry))):
            expected = [record for record, _ in would_write(self.replay, reason, case)]
            if expected and None not in expected:
                yield Missing(_name(case), next(record for record in expected if record is not None))

    def _alone(self, offset: int, record: PartitionChange, case: Case, around: Iterable[Reason]) -> None:
        """Explain a change by itself; if nothing does, ask also what the actions of the records around would write."""
        considered: list[Alternative] = []
        for reason in ALONE:
            outcome = match(self.replay, reason, case, record)
            if isinstance(outcome, Match):
                self._note(offset, case, outcome)
                return
            considered.append(outcome)
        for reason in around:
            outcome = match(self.replay, reason, case, record)
            if isinstance(outcome, Match):
                outcome = Alternative(reason.name, None, "its record is not next to this one")
            if reason.broker in case.before.replicas:
                considered.append(outcome)
        self.deviations.append(Deviation(offset, record, _name(case), "no action explains", tuple(considered)))

    def _note(self, offset: int, case: Case, matched: Match) -> None:
        reason, causes, quirk = matched
        step = Transition(case.topic, case.key, case.before, case.after, causes[0] if causes else Cause.UNKNOWN)
        self.actions.append(Action(offset, reason.name, _name(case), reason.broker, causes, step, quirk))


def _name(case: Case) -> str:
    return f"{case.topic.topic}-{case.key.partition}"
