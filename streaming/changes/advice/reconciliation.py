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

from collections import defaultdict
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.events import OF_LEADERS, Evidence
from streaming.contracts.identifiers import NO_LEADER, UNSEEN_LEADER, BrokerId, Micros

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_NOBODY: Final = frozenset({NO_LEADER, UNSEEN_LEADER})


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
        """Least number of changes that happened and the change log does not hold."""
        return max(0, self.counted - self.recorded)


def may_have_counted(
    meter: Meter,
    moved: Collection[BrokerId],
    leaders: tuple[BrokerId, BrokerId],
    causes: Iterable[str],
    evidence: str | None,
) -> frozenset[BrokerId]:
    """Return the brokers whose meter one recorded change may have moved: those that left (shrinks) or joined.

    ``leaders`` are those before and after. A poll merges steps, so its evidence does not show who led when.
    """
    if not moved:
        return frozenset()
    if evidence == Evidence.INFERRED:
        return frozenset(leaders) - _NOBODY
    before, after = leaders
    is_of_leader = meter is Meter.ISR_EXPANDS or not OF_LEADERS.isdisjoint(causes)
    return frozenset({after} - _NOBODY) if before == after and is_of_leader else frozenset()


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


# Samples of the brokers' own meters compared with the recorded changes, a window per meter. Pure.
#
# A sample waits until the change log has come as far as it: what happened before it may still be on its way. Times in
# microseconds, of what was observed; no clock.


# A first sample may be older than the newest change by this much.
RECENT: Final = 120_000_000
# A broker that reports nothing for so long begins a new window when it reports again.
FORGOTTEN_AFTER: Final = 600_000_000
# A primary source that stands still for so long is no longer waited for.
SILENT_AFTER: Final = 60_000_000


class MeterKey(NamedTuple):
    """Key of a meter: its broker and topic."""

    cluster_id: str
    broker: BrokerId
    meter: Meter


class MeterSample(NamedTuple):
    """One sample of a meter."""

    at: Micros
    key: MeterKey
    value: int
    cluster: str


class RecordedChange(NamedTuple):
    """One change that a meter may have counted."""

    key: MeterKey
    not_before: Micros
    not_after: Micros


class ReconciliationWindows:
    """The open window of every meter."""

    def __init__(self) -> None:
        self._windows: dict[MeterKey, Reconciliation] = {}
        self._names: dict[str, str] = {}
        self._recent: list[RecordedChange] = []
        self._held: dict[tuple[Micros, MeterKey], MeterSample] = {}
        self._watermarks: defaultdict[str, dict[str, Micros]] = defaultdict(dict)
        self._complete_from: dict[str, Micros] = {}

    def restore(self, key: MeterKey, window: Reconciliation, cluster: str) -> None:
        """Continue a window that was stored."""
        self._windows[key] = window
        self._names[key.cluster_id] = cluster

    def begin_anew(self) -> None:
        """Discard every window: what was recorded meanwhile can no longer be counted. Samples that wait stay."""
        self._windows.clear()
        self._recent.clear()
        self._watermarks.clear()
        self._complete_from.clear()

    def hold(self, samples: Iterable[MeterSample]) -> None:
        """Hold samples until the change log has reached their times."""
        self._held |= {(sample.at, sample.key): sample for sample in samples}

    def follow(self, changes: Iterable[RecordedChange], watermarks: Iterable[tuple[str, str, Micros]]) -> None:
        """Count recorded changes.

        A watermark is up to when a kind of source has reported everything of a cluster.
        """
        for change in changes:
            self._recent.append(change)
            if change.key in self._windows:
                self._windows[change.key] = with_recorded_change(self._windows[change.key], *change[1:])
        for cluster_id, kind, moment in watermarks:
            newest = self._watermarks[cluster_id]
            newest[kind] = max(moment, newest.get(kind, moment))
            self._complete_from.setdefault(cluster_id, moment)

    def settle(self) -> bool:
        """Count the samples that the change log has come as far as; return whether there were any."""
        newest = max((at for at, _ in self._held), default=0)
        self._held = {item: sample for item, sample in self._held.items() if item[0] >= newest - FORGOTTEN_AFTER}
        due = sorted(item for item in self._held if item[0] <= self._watermark(item[1].cluster_id))
        for item in due:
            self._count(self._held.pop(item))
        if due:
            self._forget()
        return bool(due)

    def windows(self) -> Iterator[tuple[MeterKey, str, Reconciliation]]:
        """Yield every window, with the name of its cluster."""
        for key, window in self._windows.items():
            yield key, self._names[key.cluster_id], window

    def _watermark(self, cluster_id: str) -> Micros:
        """Return up to which moment everything was recorded that will be."""
        newest = self._watermarks[cluster_id].values()
        return min((moment for moment in newest if moment > max(newest) - SILENT_AFTER), default=Micros(0))

    def _count(self, sample: MeterSample) -> None:
        window = self._windows.get(sample.key)
        if window is not None:
            self._windows[sample.key] = with_sample(window, sample.at, sample.value)
            return
        cluster_id = sample.key.cluster_id
        if sample.at < max(self._complete_from[cluster_id], self._watermark(cluster_id) - RECENT):
            return
        window = open_window(sample.at, sample.value)
        for change in self._recent:
            if change.key == sample.key:
                window = with_recorded_change(window, *change[1:])
        self._windows[sample.key] = window
        self._names[cluster_id] = sample.cluster

    def _forget(self) -> None:
        newest = {cluster_id: self._watermark(cluster_id) for cluster_id in self._watermarks}
        self._recent = [each for each in self._recent if each.not_after >= newest.get(each.key.cluster_id, 0) - RECENT]
        self._windows = {
            key: window
            for key, window in self._windows.items()
            if window.until >= newest.get(key.cluster_id, 0) - FORGOTTEN_AFTER
        }
