"""Was every ISR change that the leaders made recorded? A broker's own meters, compared with the change log.

``IsrShrinksPerSec`` and ``IsrExpandsPerSec`` of ``ReplicaManager`` count, on the leader, each change that the leader
asked for and got (AlterPartition); what a controller does on its own moves no meter. Both sides are compared over one
window, from the first sample on. A change that the meter may have counted is taken as counted, so ``missed`` is a lower
bound. Neither meter depends on the version. ``UncleanLeaderElectionsPerSec`` does, so it is compared with nothing:
Kafka 3.9 compares the new leader with the ISR of before alone, so it also counts a reassignment whose last replica to
join becomes the leader (KAFKA-19212), and an election from the ELR where there is one (KAFKA-18940); 4.3 goes by
the recovery state of the leader.
Pure: values in, values out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from streaming.contracts.events import OF_LEADERS, Evidence
from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from streaming.contracts.identifiers import BrokerId, Micros


class Meter(StrEnum):
    """The two meters, by the name of the change that they count."""

    ISR_SHRINKS = "isr_shrinks"
    ISR_EXPANDS = "isr_expands"


METRIC_OF: Final = {meter: f"kafka_server_replicamanager_{meter.replace('_', '')}_total" for meter in Meter}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """One meter of one broker since the first sample.

    Attributes:
        since: when the first sample was taken.
        until: when the newest one was.
        meter_value: the newest sample.
        counted: changes that the broker counted in this window.
        recorded: changes in it that the change log holds and the broker may have counted.
        resets: how often the meter was reset to 0, with its broker.
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
        """How many changes, at the least, happened that the change log does not hold."""
        return max(0, self.counted - self.recorded)


def may_have_counted(
    meter: Meter,
    moved: Collection[BrokerId],
    leaders: tuple[BrokerId, BrokerId],
    causes: Iterable[str],
    evidence: str | None,
) -> frozenset[BrokerId]:
    """Return the brokers whose meter one recorded change may have moved.

    Args:
        meter: which meter.
        moved: the brokers that left the ISR (shrinks), or joined it (expands).
        leaders: who led before and after.
        causes: the cause and the candidates beside it.
        evidence: of the cause. A poll merges steps, so it does not show who led when.
    """
    if not moved:
        return frozenset()
    if evidence == Evidence.INFERRED:
        return frozenset(leaders) - {NO_LEADER}
    before, after = leaders
    is_of_leader = meter is Meter.ISR_EXPANDS or not OF_LEADERS.isdisjoint(causes)
    return frozenset({after} - {NO_LEADER}) if before == after and is_of_leader else frozenset()


def open_window(at: Micros, meter_value: int) -> Reconciliation:
    """Return the window that a first sample opens."""
    return Reconciliation(since=at, until=at, meter_value=meter_value)


def with_recorded_change(window: Reconciliation, not_before: Micros, not_after: Micros) -> Reconciliation:
    """Add one recorded change that this meter may have counted, with the time window in which it happened."""
    if not_after < window.since:
        return window
    if not_before > window.until:
        return replace(window, ahead=(*window.ahead, not_before))
    return replace(window, recorded=window.recorded + 1)


def with_sample(window: Reconciliation, at: Micros, meter_value: int) -> Reconciliation:
    """Add a newer sample; a meter that is lower than before was reset to 0. Older samples change nothing."""
    if at <= window.until:
        return window
    is_reset = meter_value < window.meter_value
    reached = [moment for moment in window.ahead if moment <= at]
    return replace(
        window,
        until=at,
        meter_value=meter_value,
        counted=window.counted + (meter_value if is_reset else meter_value - window.meter_value),
        recorded=window.recorded + len(reached),
        resets=window.resets + is_reset,
        ahead=tuple(moment for moment in window.ahead if moment > at),
    )
