"""ISR removals whose cause is ambiguous until a later record proves it.

A broker that leads nothing and shuts down cleanly goes from running to fenced in one step, like one whose session
expired. But an expired session is removed, while a controlled shutdown leaves the session in place: it expires later
and fences the broker a second time (measured on real clusters, one session timeout after the shutdown). A new
registration of the broker creates a new session, and a new controller has none of the old ones: both end the chance of
a proof.

A second fencing alone proves nothing: a broker whose session expired, but whose process begins to stop before it is
unfenced, is fenced again at that moment. So the time between the two must be one session timeout as this cluster has
shown it (``SessionGaps``), and the controllers must be known to be of 4.0 or newer, whose sessions these are;
otherwise the cause stays ambiguous. Pure; depends on metadata records only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, Micros, Offset, TopicId
from streaming.contracts.records import BrokerRegistrationChange, LeaderChange, RegisterBroker, UnregisterBroker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streaming.contracts.records import MetadataRecord
    from streaming.sources.metadata_log.causes import AppliedRecord, Explanation

_AMBIGUOUS: Final = (Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)


class AmbiguousRemoval(NamedTuple):
    """One step of a partition with an ambiguous cause: the removed broker, offset and time of the record."""

    broker: BrokerId
    topic_id: TopicId
    partition: int
    offset: Offset
    at: Micros


class AmbiguousRemovals:
    """The ambiguous removals of one cluster that may still be proven."""

    def __init__(self, rows: Iterable[Sequence[Any]] = (), session: Mapping[str, Any] | None = None) -> None:
        """Start with removals as returned by ``to_rows``, and with the document of ``session``."""
        self.session = SessionGaps(session)
        # Of brokers that were fenced, and since then not fenced again, unfenced or registered, by the same controller.
        self._open: dict[BrokerId, list[AmbiguousRemoval]] = {}
        # Ambiguous steps directly before the next record; empty at the end of a unit: the fencing is in the same one.
        self._run: list[tuple[Offset, AppliedRecord]] = []
        for row in rows:
            removal = AmbiguousRemoval(*row)
            self._open.setdefault(removal.broker, []).append(removal)

    def to_rows(self) -> list[list[Any]]:
        """Return the open removals as JSON values."""
        return [list(removal) for removals in self._open.values() for removal in removals]

    def follow(
        self, offset: Offset, at: Micros, step: AppliedRecord, why: Explanation | None, *, keeps_sessions: bool
    ) -> list[AmbiguousRemoval]:
        """Process one record, in log order; return the removals that it proves to be controlled shutdowns.

        Invariant: ``_run`` holds the ambiguous steps directly before this record; the fencing record that follows a
        run names the broker whose removals they are.

        Args:
            offset: offset of the record.
            at: timestamp of its batch.
            step: the record as it was applied.
            why: its cause.
            keeps_sessions: the controllers are known to keep the session of a broker that shut down.
        """
        if why is not None and why.candidates == _AMBIGUOUS:
            self._run.append((offset, step))
            return []
        run, self._run = self._run, []
        record: MetadataRecord = step.record
        proven: list[AmbiguousRemoval] = []
        if isinstance(record, LeaderChange):
            self._open.clear()
        elif isinstance(record, RegisterBroker | UnregisterBroker):
            self._open.pop(record.broker, None)
        elif isinstance(record, BrokerRegistrationChange) and record.fenced:
            removals = self._open.pop(record.broker, [])
            if record.fenced > 0 and run:
                self._open[record.broker] = [_removal(record.broker, at, *ambiguous) for ambiguous in run]
            elif record.fenced > 0 and keeps_sessions:
                proven = [removal for removal in removals if self.session.agree(at - removal.at)]
        self.session.follow(record, at)
        return proven


def _removal(broker: BrokerId, at: Micros, offset: Offset, step: AppliedRecord) -> AmbiguousRemoval:
    assert step.after is not None, "only steps of partitions have a cause"  # noqa: S101 - for the type checker
    return AmbiguousRemoval(broker, step.after.topic_id, step.after.partition, offset, at)


# The time from a controlled shutdown to the second fencing of its broker by the controller: one session timeout.
#
# ``broker.session.timeout.ms`` is in no record. But a shutdown that began with an ``inControlledShutdown`` record
# leaves the session of the broker in place, and its expiry is a second fencing record. So the time between the two
# records, by the controller's clock, is the session timeout and up to an eighth of it more, the period of the check.
# Pure.


# Two gaps of one session timeout differ by the period of the check, and by what batches linger and timers are late.
_CHECKS_PER_SESSION: Final = 8
_LATE_MICROS: Final = 250_000
# One gap may be another thing, such as a heartbeat that was repeated because its response was lost.
_AGREEING: Final = 2
_KEPT: Final = 8


class SessionGaps:
    """The gaps that one cluster's log has shown, the newest last.

    Invariant: ``_stopped`` has the brokers whose first fencing ended a proven controlled shutdown, and its time.
    """

    def __init__(self, document: Mapping[str, Any] | None = None) -> None:
        """Start with what ``to_document`` returned."""
        values = {"stopping": (), "stopped": (), "gaps": ()} if document is None else document
        # Brokers that began a controlled shutdown, until they are unfenced, registered again, or their gap is measured.
        self._stopping: set[BrokerId] = set(values["stopping"])
        # Those of them that were fenced since, under the same controller; a new one restarts every session.
        self._stopped: dict[BrokerId, Micros] = dict(values["stopped"])
        # At most ``_KEPT``, newest last. They outlive controllers: the session timeout is a setting of the cluster.
        self._gaps: list[int] = list(values["gaps"])

    def to_document(self) -> dict[str, Any]:
        """Return the content as JSON values."""
        return {"stopping": sorted(self._stopping), "stopped": sorted(self._stopped.items()), "gaps": self._gaps}

    def follow(self, record: MetadataRecord, at: Micros) -> None:
        """Process one record, in log order; ``at`` is the timestamp of its batch."""
        if isinstance(record, LeaderChange):
            self._stopped.clear()  # a new controller restarts every session
        elif isinstance(record, RegisterBroker | UnregisterBroker):
            self._forget(record.broker)
        elif isinstance(record, BrokerRegistrationChange):
            self._registration(record, at)

    def agree(self, gap: int) -> bool:
        """Return whether a time between two fencings (microseconds) is the session timeout of this cluster."""
        return sum(_are_alike(gap, other) for other in self._gaps) >= _AGREEING

    def _registration(self, record: BrokerRegistrationChange, at: Micros) -> None:
        broker = record.broker
        if record.in_controlled_shutdown > 0:
            self._stopping.add(broker)
        if record.fenced < 0:
            self._forget(broker)
        elif record.fenced > 0 and broker in self._stopped:
            self._gaps = [*self._gaps, at - self._stopped.pop(broker)][-_KEPT:]
            self._stopping.discard(broker)
        elif record.fenced > 0 and broker in self._stopping:
            self._stopped[broker] = at

    def _forget(self, broker: BrokerId) -> None:
        self._stopping.discard(broker)
        self._stopped.pop(broker, None)


def _are_alike(one: int, other: int) -> bool:
    shorter, longer = sorted((one, other))
    return shorter > 0 and longer - shorter <= shorter // _CHECKS_PER_SESSION + _LATE_MICROS
