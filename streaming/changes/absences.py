"""Brokers that went away, and whether those that were stopped are overdue. Pure; times are UTC microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.changes.configured_times import ConfiguredTimes


@dataclass(slots=True)
class BrokerAbsence:
    """A broker that was down or fenced. ``restarted``: it came back as a new process, not as one that had paused.

    The order of the fields is that of the stored document (``incident_document``).
    """

    broker: int
    at: int
    planned: bool
    back_at: int | None = None
    restarted: bool = False


def overdue(absences: Sequence[BrokerAbsence], moment: int, times: ConfiguredTimes) -> set[int]:
    """Return the brokers that were stopped and are away, or back and not in every ISR, for too long.

    A broker that was stopped has to come back: within the time of a restart, or three times the longest one here. Then
    it has as long to catch up; whether it has, this does not know.
    """
    turns = (down.back_at - down.at for down in absences if down.planned and down.back_at is not None)
    until = max(times.restart, *(3 * turn for turn in turns), 0)
    last = {down.broker: down for down in absences}
    return {
        down.broker
        for down in last.values()
        if down.planned and moment - (down.at if down.back_at is None else down.back_at) > until
    }
