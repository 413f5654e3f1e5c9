"""Silence of the active controller, by the times of its own records. Pure.

An active controller writes a NoOp each ``metadata.max.idle.interval.ms`` (500 by default), whatever else it writes
(KIP-835). So a gap between two of its records that is much longer than that is a time in which the controller stood
still: it took no heartbeat either, and may take its own silence for that of brokers.

The interval is taken from the log. A log without NoOps (the interval is 0), or one of which too little was read, proves
nothing. A gap that ends with another controller is none of its silence: a new one gives every broker a whole session.
Times are those of records, so it does not matter when they are read. A clock that is set forward looks like a silence,
and is one without consequence: Kafka counts sessions by another clock, so no fencing follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import Micros
from streaming.contracts.records import LeaderChange, NoOp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.records import RecordBatch

_LATE_MICROS: Final = 2_000_000
"""Time by which a busy controller may be late."""


class ControllerSilence(NamedTuple):
    """The times of the records before and after a gap."""

    since: Micros
    until: Micros


class ControllerClock:
    """Pace of a controller, by the records of one controller epoch."""

    def __init__(self, document: Mapping[str, Any] | None = None) -> None:
        """Start with what ``to_document`` returned."""
        values = document or {}
        self._epoch: int | None = values.get("epoch")
        self._at: Micros | None = values.get("at")
        self._tick: Micros | None = values.get("tick")
        self._period: int | None = values.get("period")

    def to_document(self) -> dict[str, Any]:
        """Return the content as JSON values."""
        return {"epoch": self._epoch, "at": self._at, "tick": self._tick, "period": self._period}

    def follow(self, batch: RecordBatch) -> ControllerSilence | None:
        """Process one batch, in log order; return the silence that it ends, if there was one."""
        if batch.epoch != self._epoch or any(isinstance(record, LeaderChange) for record in batch.records):
            self.__init__({"epoch": batch.epoch, "at": batch.timestamp})  # type: ignore[misc]
            return None
        silence = self._ended_by(batch.timestamp)
        if any(isinstance(record, NoOp) for record in batch.records):
            if self._tick is not None and silence is None and batch.timestamp > self._tick:
                self._period = min(self._period or batch.timestamp, batch.timestamp - self._tick)
            self._tick = batch.timestamp
        self._at = batch.timestamp  # also where the clock was set back
        return silence

    def _ended_by(self, at: Micros) -> ControllerSilence | None:
        if self._at is None or self._tick is None or self._period is None:
            return None
        bound = self._period + max(_LATE_MICROS, self._period // 2)
        was_ticking = self._at - self._tick <= bound
        return ControllerSilence(self._at, at) if was_ticking and at - self._at > bound else None
