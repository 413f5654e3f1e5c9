"""The table of what brokers counted against what was recorded: small, and rewritten when a sample moved it.

It follows the truth, version by version, and remembers in each commit the version up to which it did. A sample waits
until the truth has come as far as it: what happened before it may still be on its way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from streaming.changes.change import Subject
from streaming.changes.reconciliation import (
    METRIC_OF,
    Meter,
    Reconciliation,
    begun,
    may_have_counted,
    recorded,
    sampled,
)
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.observations import Authority
from streaming.contracts.sample_tables import ISR_RECONCILIATION
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.definitions import arrow_schema, create_or_check
from streaming.delta.rows import plain, read_all
from streaming.delta.tail import BEFORE_FIRST, ChangeTail, TailGap
from streaming.delta.upkeep import Upkeep
from streaming.delta.writer import OVERWRITE, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A first sample may be older than the newest change by this much.
RECENT: Final = 120_000_000
# A broker that tells nothing for so long begins a new window when it tells again.
FORGOTTEN_AFTER: Final = 600_000_000
# Further back than this the truth is not read to go on with a window: a new one begins.
MOST_VERSIONS: Final = 10_000
# An authority that stands still for so long is no longer waited for.
SILENT_AFTER: Final = 60_000_000


class Key(NamedTuple):
    """Whose meter it is."""

    cluster_id: str
    broker: BrokerId
    meter: Meter


class Sample(NamedTuple):
    """One sample of a meter."""

    at: Micros
    key: Key
    value: int
    cluster: str


class Recorded(NamedTuple):
    """One change that a meter may have counted."""

    key: Key
    not_before: Micros
    not_after: Micros


class Reconciled:
    """The one writer of ``isr_reconciliation``."""

    def __init__(self, directory: Path) -> None:
        """Open the table, and go on where it was.

        Raises:
            TableRefused: it is not ours, or newer than this program.
        """
        self._truth = directory / PARTITION_CHANGES.name
        self._table = create_or_check(directory, ISR_RECONCILIATION)
        self._writer = Writer(self._table)
        self._upkeep = Upkeep(self._table, directory / ISR_RECONCILIATION.name)
        self._windows: dict[Key, Reconciliation] = {}
        self._names: dict[str, str] = {}
        for row in read_all(self._table).to_pylist():
            self._windows[Key(row["cluster_id"], row["broker"], Meter(row["meter"]))] = _window(row)
            self._names[row["cluster_id"]] = row["cluster"]
        self._follow_from(self._table.transaction_version(PARTITION_CHANGES.name))

    def _follow_from(self, version: int | None) -> None:
        is_there = DeltaTable.is_deltatable(str(self._truth))
        newest = DeltaTable(str(self._truth)).version() if is_there else BEFORE_FIRST
        if version is None or newest - version > MOST_VERSIONS:
            self._windows.clear()
            version = newest
        self._tail = ChangeTail(self._truth, version)
        self._recent: list[Recorded] = []
        self._held: dict[tuple[Micros, Key], Sample] = {}
        self._watermarks: defaultdict[str, dict[str, Micros]] = defaultdict(dict)
        self._complete_from: dict[str, Micros] = {}

    def check_ours(self) -> None:
        """Look whether somebody else writes the table since.

        Raises:
            TableRefused: somebody does.
        """
        self._writer.check_ours()

    def hold(self, samples: pa.Table) -> None:
        """Take samples of broker metrics over, those that are meters, until the truth has come as far."""
        self._held |= {(sample.at, sample.key): sample for sample in _meters(samples)}

    def put(self, samples: pa.Table) -> None:
        """Take samples over; write what that and the truth since have changed."""
        self.hold(samples)
        self._follow()
        newest = max((at for at, _ in self._held), default=0)
        self._held = {item: sample for item, sample in self._held.items() if item[0] >= newest - FORGOTTEN_AFTER}
        due = sorted(item for item in self._held if item[0] <= self._watermark(item[1].cluster_id))
        for item in due:
            self._take_sample(self._held.pop(item))
        if due:
            self._forget()
            rows = pa.Table.from_pylist(list(self._rows()), schema=arrow_schema(ISR_RECONCILIATION))
            self._writer.write(rows, OVERWRITE, {PARTITION_CHANGES.name: self._tail.version})
            self._upkeep.after_commit()

    def _follow(self) -> None:
        try:
            added = self._tail.poll()
        except TailGap:  # what was recorded meanwhile cannot be counted any more: every window begins anew
            held = self._held
            self._follow_from(None)
            self._held = held
            return
        for _, rows in added:
            for change in _recorded(rows):
                self._recent.append(change)
                if change.key in self._windows:
                    self._windows[change.key] = recorded(self._windows[change.key], *change[1:])
            for cluster_id, authority, moment in _watermarks(rows):
                known = self._watermarks[cluster_id]
                known[authority] = max(moment, known.get(authority, moment))
                self._complete_from.setdefault(cluster_id, moment)

    def _watermark(self, cluster_id: str) -> Micros:
        """Tell up to which moment everything was recorded that will be."""
        known = self._watermarks[cluster_id].values()
        return min((moment for moment in known if moment > max(known) - SILENT_AFTER), default=Micros(0))

    def _take_sample(self, sample: Sample) -> None:
        window = self._windows.get(sample.key)
        if window is not None:
            self._windows[sample.key] = sampled(window, sample.at, sample.value)
            return
        cluster_id = sample.key.cluster_id
        if sample.at < max(self._complete_from[cluster_id], self._watermark(cluster_id) - RECENT):
            return
        window = begun(sample.at, sample.value)
        for change in self._recent:
            if change.key == sample.key:
                window = recorded(window, *change[1:])
        self._windows[sample.key] = window
        self._names[cluster_id] = sample.cluster

    def _forget(self) -> None:
        seen = {cluster_id: self._watermark(cluster_id) for cluster_id in self._watermarks}
        self._recent = [it for it in self._recent if it.not_after >= seen.get(it.key.cluster_id, 0) - RECENT]
        self._windows = {
            key: window
            for key, window in self._windows.items()
            if window.until >= seen.get(key.cluster_id, 0) - FORGOTTEN_AFTER
        }

    def _rows(self) -> Iterator[dict[str, Any]]:
        for key, window in self._windows.items():
            told = {**asdict(window), "ahead": [{"occurred_not_before": moment} for moment in window.ahead]}
            yield {
                **key._asdict(),
                **told,
                "cluster": self._names[key.cluster_id],
                "missed": window.missed,
                "as_of_version": self._tail.version,
            }


def _window(row: dict[str, Any]) -> Reconciliation:
    ahead = tuple(Micros(told["occurred_not_before"]) for told in row["ahead"] or ())
    return Reconciliation(**{item.name: row[item.name] for item in fields(Reconciliation)} | {"ahead": ahead})


def _meters(samples: pa.Table) -> Iterator[Sample]:
    meters = {metric: meter for meter, metric in METRIC_OF.items()}
    told = samples.filter(pc.is_in(samples["metric"], value_set=pa.array(list(meters))))
    for row in told.to_pylist():
        key = Key(row["cluster_id"], row["broker"], meters[row["metric"]])
        yield Sample(row["collected_at"], key, int(row["metric_value"]), row["cluster"])


def _recorded(rows: pa.Table) -> Iterator[Recorded]:
    """Name the meters that the changes of one version may have moved."""
    is_partition = pc.equal(rows["subject"], Subject.PARTITION)
    moved = pc.or_(*(pc.greater(pc.list_value_length(rows[name]), 0).fill_null(False) for name in _MOVED.values()))
    changes = plain(rows.filter(pc.and_(is_partition, pc.and_(moved, pc.invert(rows["is_baseline"])))).select(_COLUMNS))
    for row in changes.to_pylist():
        if row["before"] is None:
            continue
        leaders = (row["before"]["leader"], row["after"]["leader"])
        causes = [row["cause"], *(row["candidates"] or ())]
        for meter, column in _MOVED.items():
            for broker in may_have_counted(meter, row[column] or (), leaders, causes, row["evidence"]):
                key = Key(row["cluster_id"], broker, meter)
                yield Recorded(key, row["occurred_not_before"], row["occurred_not_after"])


def _watermarks(rows: pa.Table) -> Iterator[tuple[str, str, Micros]]:
    told = plain(
        rows.filter(pc.equal(rows["subject"], Subject.SOURCE)).select(["cluster_id", "authority", "source_after"])
    )
    for row in told.to_pylist():
        seen = row["source_after"]["observed_until"]
        if seen is not None and row["authority"] != Authority.NONE:
            yield row["cluster_id"], row["authority"], seen


_MOVED: Final = {Meter.ISR_SHRINKS: "left_isr", Meter.ISR_EXPANDS: "joined_isr"}
_COLUMNS: Final = [
    "cluster_id", "before", "after", "cause", "candidates", "evidence", "occurred_not_before", "occurred_not_after",
    *_MOVED.values(),
]  # fmt: skip
