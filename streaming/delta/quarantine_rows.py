"""Rows of ``quarantine``: the first records of each source and kind of reason whole, the others as counts.

A version skew refuses every record of every full report, so what is kept must not grow with what is refused. Rows of
the newest counts are merged now and then (``condensed``), without changing any sum. Pure: values in, values out.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from streaming.contracts.tables import QUARANTINE
from streaming.delta.arrow_values import plain
from streaming.delta.definitions import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

KEPT_RECORDS: Final = 20
KEPT_BYTES: Final = 1024 * 1024
"""Of each channel, source and kind of reason; the first record is kept whatever its size."""
KEPT_DAYS: Final = 30
"""How long records are kept whole where history is retained for ever; afterwards they are counted."""
SCHEMA: Final = arrow_schema(QUARANTINE)
_MICROS_PER_DAY: Final = 86_400_000_000
_ORDER: Final = [("channel", "ascending"), ("source", "ascending"), ("position", "ascending")]

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
    """What records are kept and counted by."""

    channel: str
    source: str
    reason_kind: str


class KeptRecords:
    """How many records of each key are kept whole, and for how long yet."""

    def __init__(self, days: int) -> None:
        """Begin with none.

        Args:
            days: of history that is retained; 0 for all, then records are kept for ``KEPT_DAYS``.
        """
        self._kept_for = (days or KEPT_DAYS) * _MICROS_PER_DAY
        self._kept: dict[ReasonKey, deque[tuple[int, int]]] = {}

    def add(self, key: ReasonKey, refused_at: int, size: int) -> None:
        """Count a record that is kept: when it was refused, in UTC microseconds, and its bytes."""
        self._kept.setdefault(key, deque()).append((refused_at, size))

    def has_room(self, key: ReasonKey, size: int, now: int) -> bool:
        """Return whether one more record may be kept."""
        kept = self._kept.get(key, deque())
        while kept and self.is_over(kept[0][0], now):
            kept.popleft()
        return not kept or (len(kept) < KEPT_RECORDS and sum(each for _, each in kept) + size <= KEPT_BYTES)

    def is_over(self, refused_at: int, now: int) -> bool:
        """Return whether a record of some time is not to be kept any more."""
        return refused_at < now - self._kept_for


def count_row(key: ReasonKey, position: int, reason: str, records: int, refused_at: int) -> dict[str, Any]:
    """Make a row that counts records up to a position; reason and time are those of the newest one."""
    return {
        **key._asdict(),
        "position": position,
        "reason": reason,
        "records": records,
        "raw": None,
        "raw_bytes": None,
        "quarantined_at": refused_at,
    }


def condensed(rows: pa.Table, days: int, now: int) -> pa.Table:
    """Merge the counts of each key into one, and count what is not to be kept whole any more; sums stay.

    Args:
        rows: of ``quarantine``.
        days: of history that is retained; 0 for all.
        now: in UTC microseconds.
    """
    rows = plain(rows).sort_by(_ORDER)
    kept, keeping = KeptRecords(days), []
    counts: dict[ReasonKey, dict[str, Any]] = {}
    for index, row in enumerate(rows.drop_columns(["raw"]).to_pylist()):
        key, size = ReasonKey(row["channel"], row["source"], row["reason_kind"]), row["raw_bytes"]
        refused_at = row["quarantined_at"]
        if size is not None and not kept.is_over(refused_at, now) and kept.has_room(key, size, now):
            kept.add(key, refused_at, size)
            keeping.append(index)
        else:
            before = counts[key]["records"] if key in counts else 0
            counts[key] = count_row(key, row["position"], row["reason"], before + row["records"], refused_at)
    samples = rows.take(pa.array(keeping, pa.int64())).select(SCHEMA.names).cast(SCHEMA)
    return pa.concat_tables([samples, as_rows(counts[key] for key in sorted(counts))])


def as_rows(rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Write rows as Arrow."""
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)
