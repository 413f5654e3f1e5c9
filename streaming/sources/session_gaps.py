"""How long after a controlled shutdown a cluster's controller fences the broker a second time: one session timeout.

``broker.session.timeout.ms`` is in no record. But a shutdown that began with an ``inControlledShutdown`` record leaves
the session of the broker in place, and its expiry is a second fencing record. So the time between the two records, by
the controller's clock, is the session timeout and up to an eighth of it more, the period of the check. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.records import BrokerRegistrationChange, LeaderChange, RegisterBroker, UnregisterBroker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.identifiers import BrokerId, Micros
    from streaming.contracts.records import MetadataRecord

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
        self._stopping: set[BrokerId] = set(values["stopping"])
        self._stopped: dict[BrokerId, Micros] = dict(values["stopped"])
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
