"""Did we see every ISR change that the leaders made? A broker's own meters against what was recorded of it.

``IsrShrinksPerSec`` and ``IsrExpandsPerSec`` of ``ReplicaManager`` count, on the leader, each change that the leader
asked for and got (AlterPartition); what a controller does on its own moves no meter. Both sides are compared over one
window, from the first sample on. Whatever may have been counted is taken for recorded, so ``missed`` is a lower bound.
Pure: values in, values out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from streaming.contracts.identifiers import BrokerId, Micros


class Meter(StrEnum):
    """The two meters, by the name of the change that they count."""

    ISR_SHRINKS = "isr_shrinks"
    ISR_EXPANDS = "isr_expands"


METRIC_OF: Final = {meter: f"kafka_server_replicamanager_{meter.replace('_', '')}_total" for meter in Meter}
_OF_LEADERS: Final = frozenset({Cause.LAG, Cause.LEADER_STALL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """One meter of one broker since the first sample.

    Attributes:
        since: when the first sample was taken.
        until: when the newest one was.
        meter_value: the newest sample.
        counted: changes that the broker counted in this window.
        recorded: changes in it that we recorded and the broker may have counted.
        resets: how often the meter began anew, with its broker.
        ahead: recorded changes that began after ``until``: the newest sample cannot have counted them.
    """

    since: Micros
    until: Micros
    meter_value: int
    counted: int = 0
    recorded: int = 0
    resets: int = 0
    ahead: tuple[Micros, ...] = ()

    @property
    def missed(self) -> int:
        """How many changes happened, at the least, that nobody recorded."""
        return max(0, self.counted - self.recorded)


def may_have_counted(
    meter: Meter,
    moved: Collection[BrokerId],
    leaders: tuple[BrokerId, BrokerId],
    causes: Iterable[str],
    evidence: str | None,
) -> frozenset[BrokerId]:
    """Name the brokers whose meter one recorded change may have moved.

    Args:
        meter: which meter.
        moved: the brokers that left the ISR (shrinks), or joined it (expands).
        leaders: who led before and after.
        causes: the cause and the candidates beside it.
        evidence: how they are known. A poll merges steps, so it cannot tell who led when.
    """
    if not moved:
        return frozenset()
    if evidence == Evidence.INFERRED:
        return frozenset(leaders) - {NO_LEADER}
    before, after = leaders
    is_of_leader = meter is Meter.ISR_EXPANDS or not _OF_LEADERS.isdisjoint(causes)
    return frozenset({after} - {NO_LEADER}) if before == after and is_of_leader else frozenset()


def begun(at: Micros, meter_value: int) -> Reconciliation:
    """Open a window at a first sample."""
    return Reconciliation(since=at, until=at, meter_value=meter_value)


def recorded(it: Reconciliation, not_before: Micros, not_after: Micros) -> Reconciliation:
    """Take one recorded change over that this meter may have counted, with the window in which it happened."""
    if not_after < it.since:
        return it
    if not_before > it.until:
        return replace(it, ahead=(*it.ahead, not_before))
    return replace(it, recorded=it.recorded + 1)


def sampled(it: Reconciliation, at: Micros, meter_value: int) -> Reconciliation:
    """Take a newer sample over; a meter that stands lower than before began anew from 0. Older samples say nothing."""
    if at <= it.until:
        return it
    is_reset = meter_value < it.meter_value
    reached = [moment for moment in it.ahead if moment <= at]
    return replace(
        it,
        until=at,
        meter_value=meter_value,
        counted=it.counted + (meter_value if is_reset else meter_value - it.meter_value),
        recorded=it.recorded + len(reached),
        resets=it.resets + is_reset,
        ahead=tuple(moment for moment in it.ahead if moment > at),
    )
