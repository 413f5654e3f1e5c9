"""Samples of the brokers' own meters laid beside the recorded changes, a window per meter. Pure.

A sample waits until the change log has come as far as it: what happened before it may still be on its way. Times in
microseconds, of what was observed; no clock.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.changes.reconciliation import Meter, Reconciliation, open_window, with_recorded_change, with_sample
from streaming.contracts.identifiers import BrokerId, Micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A first sample may be older than the newest change by this much.
RECENT: Final = 120_000_000
# A broker that reports nothing for so long begins a new window when it reports again.
FORGOTTEN_AFTER: Final = 600_000_000
# A primary source that stands still for so long is no longer waited for.
SILENT_AFTER: Final = 60_000_000


class MeterKey(NamedTuple):
    """Whose meter it is."""

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
        """Go on with a window that was stored."""
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

        Args:
            changes: that a meter may have counted.
            watermarks: cluster id, kind of source, and the moment up to which it has reported everything.
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
