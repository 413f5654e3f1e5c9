"""The table ``isr_reconciliation``: ISR changes that brokers counted, compared with those in the change log.

It is small, and overwritten when a sample changes it. It follows the change log, and stores in each commit up to which
version.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.advice.reconciliation import (
    METRIC_OF,
    Meter,
    MeterKey,
    MeterSample,
    Reconciliation,
    ReconciliationWindows,
    RecordedChange,
    may_have_counted,
)
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import SourceKind
from streaming.contracts.sample_tables import BROKER_METRICS, ISR_RECONCILIATION
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.history import unread_upto
from streaming.delta.changes.reader import ChangeReader, ChangesRestarted
from streaming.delta.log.definitions import arrow_schema, rows_to_arrow
from streaming.delta.log.maintenance import KEEP_ALL, Maintenance, RetentionPolicy
from streaming.delta.log.queries import plain, plain_type, read_all
from streaming.delta.log.table_log import BEFORE_FIRST, newest_version
from streaming.delta.log.writer import OVERWRITE, Writer
from streaming.delta.state import as_of_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.delta.store.place import Place

# If the change log is further ahead than this, or changes have expired since, windows begin again.
MOST_VERSIONS: Final = 10_000
_NO_COUNT: Final = 2.0**63
_METER_OF: Final = {metric: meter for meter, metric in METRIC_OF.items()}
_METERS: Final = pa.schema([
    pa.field(item.name, plain_type(item.type))
    for item in arrow_schema(BROKER_METRICS)
    if item.name in {"cluster_id", "cluster", "broker", "metric", "metric_value", "collected_at"}
])  # fmt: skip


class ReconciliationTable:
    """The only writer of ``isr_reconciliation``."""

    def __init__(self, directory: Place, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open the table, and continue after its version; ``TableRefused`` if it is not ours, or newer."""
        self._path = directory / PARTITION_CHANGES.name
        self._writer = Writer.opened(directory, ISR_RECONCILIATION)
        self._maintenance = Maintenance(self._writer, policy)
        self._windows = ReconciliationWindows()
        version, newest = as_of_version(self._writer), newest_version(self._path)
        is_behind = newest - version > MOST_VERSIONS or version < unread_upto(directory)
        if version == BEFORE_FIRST or is_behind:
            version = newest
        else:
            for row in read_all(self._writer.table).to_pylist():
                key = MeterKey(row["cluster_id"], row["broker"], Meter(row["meter"]))
                self._windows.restore(key, _window(row), row["cluster"])
        self._reader = self._reader_after(version)

    def _reader_after(self, version: int) -> ChangeReader:
        return ChangeReader(self._path, version, columns=_READ)

    def check_ours(self) -> None:
        """Raise ``TableRefused`` if a later writer has claimed the table."""
        self._writer.check_ours()

    def put(self, meters: pa.Table) -> None:
        """Add samples, and the changes that they wait for; write the rows if they have changed."""
        self._windows.hold(_counts(meters))
        self._follow()
        if self._windows.settle():
            rows = rows_to_arrow(list(self._rows()), arrow_schema(ISR_RECONCILIATION))
            self._writer.write(rows, OVERWRITE, {PARTITION_CHANGES.name: self._reader.version})
            self._maintenance.after_commit()

    def _follow(self) -> None:
        try:
            added = self._reader.poll()
        except ChangesRestarted:
            self._windows.begin_anew()
            self._reader = self._reader_after(newest_version(self._path))
            return
        for _, rows in added:
            self._windows.follow(_recorded(rows), _watermarks(rows))

    def _rows(self) -> Iterator[dict[str, object]]:
        for key, cluster, window in self._windows.windows():
            yield {
                **key._asdict(),
                **asdict(window),
                "ahead": [{"occurred_not_before": moment} for moment in window.ahead],
                "cluster": cluster,
                "missed": window.missed,
                "as_of_version": self._reader.version,
            }


def _window(row: dict[str, Any]) -> Reconciliation:
    ahead = tuple(Micros(recorded["occurred_not_before"]) for recorded in row["ahead"] or ())
    return Reconciliation(**{item.name: row[item.name] for item in fields(Reconciliation)} | {"ahead": ahead})


def meters_in(metrics: pa.Table) -> pa.Table:
    """Return the samples of meters among those of broker metrics, times in microseconds."""
    meters = metrics.select(_METERS.names).cast(_METERS)
    return meters.filter(pc.is_in(meters["metric"], pa.array(list(_METER_OF))))


def _counts(meters: pa.Table) -> Iterator[MeterSample]:
    """Yield the samples whose values are counts."""
    values = meters["metric_value"]
    for row in meters.filter(pc.and_(pc.greater_equal(values, 0.0), pc.less(values, _NO_COUNT))).to_pylist():
        key = MeterKey(row["cluster_id"], row["broker"], _METER_OF[row["metric"]])
        yield MeterSample(row["collected_at"], key, int(row["metric_value"]), row["cluster"])


def _recorded(rows: pa.Table) -> Iterator[RecordedChange]:
    """Yield the meters that the changes of one version may have moved."""
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
                key = MeterKey(row["cluster_id"], broker, meter)
                yield RecordedChange(key, row["occurred_not_before"], row["occurred_not_after"])


def _watermarks(rows: pa.Table) -> Iterator[tuple[str, str, Micros]]:
    changes_read = plain(
        rows.filter(pc.equal(rows["subject"], Subject.SOURCE)).select(["cluster_id", "source_kind", "source_after"])
    )
    for row in changes_read.to_pylist():
        seen = row["source_after"]["observed_until"]
        if seen is not None and row["source_kind"] != SourceKind.NONE:
            yield row["cluster_id"], row["source_kind"], seen


_MOVED: Final = {Meter.ISR_SHRINKS: "left_isr", Meter.ISR_EXPANDS: "joined_isr"}
_READ: Final = (
    "subject", "source_kind", "is_baseline", "cause", "candidates", "evidence", "occurred_not_before",
    "occurred_not_after", "before.leader", "after.leader", "source_after.observed_until", *_MOVED.values(),
)  # fmt: skip
_COLUMNS: Final = [
    "cluster_id", "before", "after", "cause", "candidates", "evidence", "occurred_not_before", "occurred_not_after",
    *_MOVED.values(),
]  # fmt: skip
