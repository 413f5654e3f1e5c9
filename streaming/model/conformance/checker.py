"""A log in, actions and departures out: whether a controller did what the model's controller would have done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.records import Config, Partition, RemoveTopic
from streaming.model.conformance.actions import Action, Departure, Explanation
from streaming.model.conformance.changes import Changes, Stretch, stretches
from streaming.model.conformance.records import Preconditions, name_of
from streaming.model.conformance.replay import Refused, Replay

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.records import MetadataRecord, RecordBatch


class Checker:
    """Reads a metadata log from its begin, or from a snapshot on.

    It believes the log: after a departure it goes on from what the log says.

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

    def observe(self, batch: RecordBatch) -> tuple[Departure, ...]:
        """Take the next batch; give what the model would not have written."""
        return self.explain(batch).departures

    def explain(self, batch: RecordBatch) -> Explanation:
        """Take the next batch; give the actions behind it, and what no action explains."""
        changes = Changes(self._replay)
        if self._next_offset not in {None, batch.base_offset}:
            reason = f"offset {self._next_offset} would be next"
            changes.departures.append(Departure(batch.base_offset, batch.records[0], reason))
        self._next_offset = batch.base_offset + len(batch.records)
        for stretch in stretches(batch.base_offset, batch.records):
            self._explain(stretch, changes)
        missing = self._preconditions.end()
        changes.departures += [Departure(self._next_offset - 1, batch.records[-1], reason) for reason in missing]
        self._replay.registry.transitions.clear()
        return Explanation(tuple(sorted(changes.actions, key=lambda it: it.offset)), tuple(changes.departures))

    def _explain(self, stretch: Stretch, changes: Changes) -> None:
        """Explain the changes of a stretch, then the record that closes it."""
        cleaned_up = changes.explain(stretch)
        record, offset = stretch.closing, stretch.begins_at + len(stretch.changes)
        if record is None:
            return
        reasons = list(self._preconditions.broken(record, offset - cleaned_up))
        subject = self._subject(record)
        try:
            self._replay.apply(record)
        except Refused as why:
            reasons = [str(why)]
        changes.departures += [Departure(offset, record, reason) for reason in reasons]
        if not reasons:
            changes.actions.append(Action(offset, name_of(record), subject, getattr(record, "broker", None)))

    def _subject(self, record: MetadataRecord) -> str:
        """Name what a record is about."""
        match record:
            case Config():
                return f"{record.resource_name or 'cluster'} {record.key}"
            case RemoveTopic() | Partition():
                topic = self._replay.registry.topics.get(record.topic_id)
                number = f"-{record.partition}" if isinstance(record, Partition) else ""
                return "" if topic is None else f"{topic.topic}{number}"
            case _:
                return getattr(record, "topic", "")
