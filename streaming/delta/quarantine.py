"""The writer of ``quarantine``: unparseable records with the reason and their position on the bus.

For each source and kind of reason the first records are kept whole, and the others counted (``KeptRecords``), so that
refused records do not slow down later writes and starts. All channels write the table, each at exactly the next
version; a writer that comes second tries again (``Writer.in_turn``).

A record is one of a run of a log, at a position: no other record ever has both. So the table itself says which records
it has, by run, whatever log the bus holds now and however far its reader says that it was.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from streaming.contracts.identifiers import DAY
from streaming.contracts.tables import QUARANTINE
from streaming.delta.log.commit import applied_position, moved
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.maintenance import KEEP_ALL, Maintenance, RetentionPolicy, expires_by
from streaming.delta.log.queries import open_ours, plain, query
from streaming.delta.log.writer import APPEND, OVERWRITE, Writer
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streaming.contracts.identifiers import Micros
    from streaming.delta.log.commit import StoresTransactions
    from streaming.delta.store.place import Place

FILES_BEFORE_CONDENSING: Final = 64
"""Number of files that are merged into one, which takes about as long as a few writes. Each write adds a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecord:
    """One refused record: its place on the bus, the reason, and its bytes; ``log_id`` of a log that has one."""

    source: str
    log_id: int | None
    position: int
    reason: str
    raw: bytes | None


class Quarantine:
    """A writer of ``quarantine``, for one channel. A replayed record is not written twice."""

    def __init__(self, directory: Place, channel: str, policy: RetentionPolicy = KEEP_ALL) -> None:
        self._writer = Writer.opened(directory, QUARANTINE)
        self._maintenance = Maintenance(self._writer, policy)
        self._channel, self._policy = channel, policy
        self._kept, self._kept_at = KeptRecords(policy.days), -1

    def by_source(self) -> Counter[str]:
        """Count the records of each source of this channel."""
        counts: Counter[str] = Counter()
        for row in self._writer.in_turn(self._rows).select(["source", "records"]).to_pylist():
            counts[row["source"]] += row["records"]
        return counts

    def _rows(self) -> pa.Table:
        """Read the rows of this channel, without the records themselves."""
        rows = query(
            self._writer.table,
            "SELECT source, position, reason_kind, records, raw_bytes, quarantined_at "  # noqa: S608 - our own names
            f"FROM rows WHERE channel = '{self._channel}' ORDER BY quarantined_at, position",
        )
        return plain(rows)

    def add(self, refused: Sequence[RefusedRecord], now: Micros) -> Counter[str]:
        """Append new records; return how many of each source.

        Raises:
            TableRefused: others wrote at every one of many tries.
        """
        return self._writer.in_turn(lambda: self._append(refused, now)) if refused else Counter()

    def _append(self, refused: Sequence[RefusedRecord], now: Micros) -> Counter[str]:
        """Append the records that the table does not have yet."""
        self._writer.look_again()
        fresh = _missing(self._writer, self._channel, refused)
        if fresh:
            newest: dict[str, int] = {}
            for record in fresh:
                run = _run(self._channel, record)
                newest[run] = max(newest.get(run, -1), record.position)
            rows = [self._row_of(record, now) for record in fresh]
            whole, counts = sorted_out(rows, self._kept_records(), now)
            self._kept_at = self._writer.write(
                as_rows([*(rows[index] for index in whole), *counts]), APPEND, moved(newest)
            )
            self._maintenance.after_commit()
            self._condense(now)
        return Counter(record.source for record in fresh)

    def _row_of(self, record: RefusedRecord, now: Micros) -> dict[str, Any]:
        key, raw = ReasonKey(self._channel, record.source, reason_kind(record.reason)), record.raw or b""
        return {**count_row(key, record.position, record.reason, 1, now), "raw": raw, "raw_bytes": len(raw)}

    def _kept_records(self) -> KeptRecords:
        """Return the records of this channel that are kept whole; count them again if others have written."""
        if self._kept_at != self._writer.version:
            self._kept = KeptRecords(self._policy.days)
            for row in self._rows().to_pylist():
                if row["raw_bytes"] is not None:
                    key = ReasonKey(self._channel, row["source"], row["reason_kind"])
                    self._kept.add(key, row["quarantined_at"], row["raw_bytes"])
        return self._kept

    def _condense(self, now: int) -> None:
        """Merge the rows of all channels into one file if there are many files, unless others write at the moment."""
        if len(self._writer.files()) < FILES_BEFORE_CONDENSING:
            return
        with suppress(TableRefused):
            rows = query(self._writer.table, "SELECT * FROM rows")
            by = min(now, expires_by(self._writer, self._policy))
            self._writer.write(condensed(rows, self._policy.days, by), OVERWRITE, {})


def missing(directory: Place, channel: str, refused: Sequence[RefusedRecord]) -> list[RefusedRecord]:
    """Return the records that the table does not have.

    Raises:
        TableUnreadable: its log is damaged.
    """
    table = open_ours(directory, QUARANTINE) if refused else None
    return [*refused] if table is None else _missing(table, channel, refused)


def _missing(table: StoresTransactions, channel: str, refused: Sequence[RefusedRecord]) -> list[RefusedRecord]:
    last = {run: applied_position(table, run) for run in {_run(channel, each) for each in refused}}
    return [record for record in refused if record.position > last[_run(channel, record)]]


def _run(channel: str, record: RefusedRecord) -> str:
    return f"{channel}/{record.source}/{record.log_id or 0:016x}"


# Rows of ``quarantine``: the first records of each source and kind of reason whole, the others as counts.
#
# If versions differ, every record of every full report is refused, so the kept rows must not grow with the refused
# records. Rows with counts are merged now and then (``condensed``), which changes no sum. Pure functions.


KEPT_RECORDS: Final = 20
KEPT_BYTES: Final = 1024 * 1024
"""Bytes kept by channel, source and kind of reason; the first record is kept whatever its size."""
KEPT_DAYS: Final = 30
"""Days that records are kept whole if history is retained for ever; afterwards they are counted."""
SCHEMA: Final = arrow_schema(QUARANTINE)
_ORDER: Final = [(name, "ascending") for name in ("channel", "source", "quarantined_at", "position")]

_REASON_KINDS: Final = {
    "json": re.compile(r"^not (a )?JSON"),
    "schema_version": re.compile(r"^schema version "),
    "unknown_kind": re.compile(r"^unknown kind "),
    "undecodable": re.compile(r"^undecodable at its source"),
    "channel": re.compile(r" does not belong on the channel "),
    "field": re.compile(r"^\w+: \w+ is |has an unknown value "),
}
_OTHER_KIND: Final = "damaged"


def reason_kind(reason: str) -> str:
    """Return the kind of a reason: one of a few words.

    >>> reason_kind("unknown kind 'dream'"), reason_kind("partition: leader is missing")
    ('unknown_kind', 'field')
    """
    return next((kind for kind, mark in _REASON_KINDS.items() if mark.search(reason)), _OTHER_KIND)


class ReasonKey(NamedTuple):
    """Key by which records are kept and counted."""

    channel: str
    source: str
    reason_kind: str


class KeptRecords:
    """The records of each key that are kept whole: when they were refused, and their bytes."""

    def __init__(self, days: int) -> None:
        """Begin with none; ``days`` of history are retained, 0 for all: then records are kept for ``KEPT_DAYS``."""
        self._kept_for = (days or KEPT_DAYS) * DAY
        self._kept: dict[ReasonKey, deque[tuple[int, int]]] = {}

    def add(self, key: ReasonKey, refused_at: int, size: int) -> None:
        """Count a record that is kept; ``refused_at`` is in UTC microseconds, ``size`` in bytes."""
        self._kept.setdefault(key, deque()).append((refused_at, size))

    def has_room(self, key: ReasonKey, size: int, now: int) -> bool:
        """Return whether one more record may be kept."""
        kept = self._kept.get(key, deque())
        while kept and self.is_over(kept[0][0], now):
            kept.popleft()
        return not kept or (len(kept) < KEPT_RECORDS and sum(each for _, each in kept) + size <= KEPT_BYTES)

    def is_over(self, refused_at: int, now: int) -> bool:
        """Return whether a record is too old to be kept."""
        return refused_at < now - self._kept_for


def count_row(key: ReasonKey, position: int, reason: str, records: int, refused_at: int) -> dict[str, Any]:
    """Make a row that counts records up to a position, with the reason and time of the newest one."""
    return {
        **key._asdict(),
        "position": position,
        "reason": reason,
        "records": records,
        "raw": None,
        "raw_bytes": None,
        "quarantined_at": refused_at,
    }


def sorted_out(
    rows: Iterable[Mapping[str, Any]], kept: KeptRecords, now: int
) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the indices of the records that are kept whole, and one row per key that counts the others.

    The rows are in the order in which they were refused, whole or counts; what is kept now is added to ``kept``.
    """
    keeping, counts = list[int](), dict[ReasonKey, dict[str, Any]]()
    for index, row in enumerate(rows):
        key, size = ReasonKey(row["channel"], row["source"], row["reason_kind"]), row["raw_bytes"]
        refused_at = row["quarantined_at"]
        if size is not None and not kept.is_over(refused_at, now) and kept.has_room(key, size, now):
            kept.add(key, refused_at, size)
            keeping.append(index)
        else:
            before = counts[key]["records"] if key in counts else 0
            counts[key] = count_row(key, row["position"], row["reason"], before + row["records"], refused_at)
    return keeping, [counts[key] for key in sorted(counts)]


def condensed(rows: pa.Table, days: int, now: int) -> pa.Table:
    """Merge the counts of each key into one row, and count records that are no longer kept whole; sums stay."""
    rows = plain(rows).sort_by(_ORDER)
    keeping, counts = sorted_out(rows.drop_columns(["raw"]).to_pylist(), KeptRecords(days), now)
    samples = rows.take(pa.array(keeping, pa.int64())).select(SCHEMA.names).cast(SCHEMA)
    return pa.concat_tables([samples, as_rows(counts)])


def as_rows(rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Write rows as Arrow."""
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)
