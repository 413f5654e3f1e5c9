"""ISR removals whose cause is ambiguous until a later record proves it.

A broker that leads nothing and shuts down cleanly goes from running to fenced in one step, like one whose session
expired. But an expired session is removed, while a controlled shutdown leaves the session in place: it expires later
and fences the broker a second time (measured on real clusters, one session timeout after the shutdown). A new
registration of the broker creates a new session, and a new controller has none of the old ones: both end the chance of
a proof. Pure; depends on metadata records only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, Offset, TopicId
from streaming.contracts.records import BrokerRegistrationChange, LeaderChange, RegisterBroker, UnregisterBroker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.contracts.records import MetadataRecord
    from streaming.sources.causes_context import AppliedRecord, Explanation

_AMBIGUOUS: Final = (Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)


class AmbiguousRemoval(NamedTuple):
    """One step of a partition with an ambiguous cause: the removed broker, and the offset of the record."""

    broker: BrokerId
    topic_id: TopicId
    partition: int
    offset: Offset


class AmbiguousRemovals:
    """The ambiguous removals of one cluster that may still be proven."""

    def __init__(self, rows: Iterable[Sequence[Any]] = ()) -> None:
        """Start with removals as returned by ``to_rows``."""
        self._open: dict[BrokerId, list[AmbiguousRemoval]] = {}
        self._run: list[tuple[Offset, AppliedRecord]] = []
        for row in rows:
            removal = AmbiguousRemoval(*row)
            self._open.setdefault(removal.broker, []).append(removal)

    def to_rows(self) -> list[list[Any]]:
        """Return the open removals as JSON values."""
        return [list(removal) for removals in self._open.values() for removal in removals]

    def follow(self, offset: Offset, step: AppliedRecord, why: Explanation | None) -> list[AmbiguousRemoval]:
        """Process one record, in log order; return the removals that it proves to be controlled shutdowns.

        Invariant: ``_run`` holds the ambiguous steps directly before this record; the fencing record that follows a
        run names the broker whose removals they are.
        """
        if why is not None and why.candidates == _AMBIGUOUS:
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
                self._open[record.broker] = [_removal(record.broker, *ambiguous) for ambiguous in run]
            elif record.fenced > 0:
                return proven
        return []


def _removal(broker: BrokerId, offset: Offset, step: AppliedRecord) -> AmbiguousRemoval:
    assert step.after is not None, "only steps of partitions have a cause"  # noqa: S101 - for the type checker
    return AmbiguousRemoval(broker, step.after.topic_id, step.after.partition, offset)
