"""A log in, actions and deviations out: whether a controller did what the model's controller would have done."""

from __future__ import annotations

from collections.abc import Iterable

from streaming.contracts.records import MetadataRecord, RecordBatch, UndecodableRecord
from tests.conformance.actions import Action, Deviation, Explanation
from tests.conformance.changes import Changes, Stretch, stretches
from tests.conformance.records import Preconditions, name_of
from tests.conformance.replay import Refused, Replay


class Checker:
    """Reads a metadata log from its begin, or from a snapshot on.

    It believes the log: after a deviation it goes on from what the log says.

    Args:
        min_insync_replicas: the controllers' static default; None where nobody knows it: any is then possible.
        unclean_leader_election: the same of ``unclean.leader.election.enable``.
    """

    def __init__(self, *, min_insync_replicas: int | None = None, unclean_leader_election: bool | None = None) -> None:
        self._replay = Replay(min_isr=min_insync_replicas, unclean=unclean_leader_election)
        self._preconditions = Preconditions(self._replay)
        self._next_offset: int | None = None

    def restore(self, snapshot: Iterable[RecordBatch]) -> None:
        """Begin with a snapshot: a state, and no steps to explain. Its offsets say nothing."""
        for batch in snapshot:
            for record in batch.records:
                self._replay.apply(record)
        self._replay.registry.transitions.clear()

    def observe(self, batch: RecordBatch) -> tuple[Deviation, ...]:
        """Take the next batch; give what the model would not have written."""
        return self.explain(batch).deviations

    def explain(self, batch: RecordBatch) -> Explanation:
        """Take the next batch; give the actions behind it, and what no action explains."""
        changes = Changes(self._replay)
        if self._next_offset not in {None, batch.base_offset}:
            changes.deviations.append(self._deviation(batch, 0, f"offset {self._next_offset} would be next"))
        end = batch.base_offset + len(batch.records)
        # Of a batch that cannot be read as a whole nobody knows how many records it holds.
        self._next_offset = None if isinstance(batch.records[-1], UndecodableRecord) else end
        for stretch in stretches(batch.base_offset, batch.records):
            self._explain(stretch, changes)
        missing = self._preconditions.end()
        changes.deviations += [self._deviation(batch, -1, reason) for reason in missing]
        self._replay.registry.transitions.clear()
        return Explanation(tuple(sorted(changes.actions, key=lambda action: action.offset)), tuple(changes.deviations))

    def _deviation(self, batch: RecordBatch, index: int, reason: str) -> Deviation:
        record = batch.records[index]
        offset = batch.base_offset + index % len(batch.records)
        return Deviation(offset, record, self._replay.subject_of(record), reason)

    def _explain(self, stretch: Stretch, changes: Changes) -> None:
        """Explain the changes of a stretch, then the record that closes it."""
        cleaned_up = changes.explain(stretch)
        record, offset = stretch.closing, stretch.begins_at + len(stretch.changes)
        if record is None:
            return
        reasons = list(self._preconditions.broken(record, offset - cleaned_up))
        subject = self._replay.subject_of(record)
        try:
            self._replay.apply(record)
        except Refused as why:
            reasons = [str(why)]
        changes.deviations += [Deviation(offset, record, subject, reason) for reason in reasons]
        if not reasons:
            changes.actions.append(_action(offset, record, subject))


def _action(offset: int, record: MetadataRecord, subject: str) -> Action:
    broker = getattr(record, "broker", None)
    return Action(offset, name_of(record), subject if broker is None else "", broker)
