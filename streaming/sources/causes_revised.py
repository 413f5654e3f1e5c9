"""Departures whose cause is in doubt, until a later record proves it.

A broker that leads nothing and stops cleanly goes from running to fenced in one step, as one whose session expired.
But a session that expires is forgotten, while a clean stop leaves it behind: it expires later and fences the broker a
second time (seen on real clusters, one session timeout after the stop). Whatever gives the broker a session anew, or
forgets all of them, takes the proof away. Pure: knows metadata records only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, Offset, TopicId
from streaming.contracts.records import BrokerRegistrationChange, LeaderChange, RegisterBroker, UnregisterBroker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.contracts.records import MetadataRecord
    from streaming.sources.causes_moves import Explanation, Step

_IN_DOUBT: Final = (Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)


class Doubt(NamedTuple):
    """One step of a partition whose cause is ambiguous: who went, and the offset of its record."""

    broker: BrokerId
    topic_id: TopicId
    partition: int
    offset: Offset


class Doubts:
    """The open doubts of one cluster."""

    def __init__(self, known: Iterable[Sequence[Any]] = ()) -> None:
        """Start with doubts as ``to_rows`` gives them."""
        self._open: dict[BrokerId, list[Doubt]] = {}
        self._run: list[tuple[Offset, Step]] = []
        for row in known:
            doubt = Doubt(*row)
            self._open.setdefault(doubt.broker, []).append(doubt)

    def to_rows(self) -> list[list[Any]]:
        """Write the open doubts as JSON values."""
        return [list(doubt) for doubts in self._open.values() for doubt in doubts]

    def follow(self, offset: Offset, step: Step, why: Explanation | None) -> list[Doubt]:
        """Take one record in, in log order; give the steps that it proves to belong to a clean stop."""
        if why is not None and why.candidates == _IN_DOUBT:
            self._run.append((offset, step))
            return []
        run, self._run = self._run, []
        record: MetadataRecord = step.record
        if isinstance(record, LeaderChange):
            self._open.clear()
        elif isinstance(record, RegisterBroker | UnregisterBroker):
            self._open.pop(record.broker, None)
        elif isinstance(record, BrokerRegistrationChange) and record.fenced:
            proven = self._open.pop(record.broker, [])
            if record.fenced > 0 and run:
                self._open[record.broker] = [_doubt(record.broker, *told) for told in run]
            elif record.fenced > 0:
                return proven
        return []


def _doubt(broker: BrokerId, offset: Offset, step: Step) -> Doubt:
    assert step.after is not None, "only a partition's step is explained"  # noqa: S101 - for the type checker
    return Doubt(broker, step.after.topic_id, step.after.partition, offset)
