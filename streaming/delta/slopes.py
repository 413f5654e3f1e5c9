"""The rule of ``contracts.slopes`` on Arrow columns, folded over the samples of every key.

A property test compares both on generated rows. Depends on Arrow and the columns of the sample tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.slopes import BYTES_WINDOW, LAG_WINDOW, MICROS_PER_SECOND
from streaming.delta.lag import row_numbers, shifted

if TYPE_CHECKING:
    from collections.abc import Iterator


class SlopeColumns(NamedTuple):
    """The columns of one slope, and of what is left at that pace.

    Attributes:
        value: what is measured.
        window: microseconds.
        per_second, since, since_value: the slope.
        seconds: time left.
        left: what shrinks by ``per_second``, or by its negative if ``is_filling``.
    """

    value: str
    window: int
    per_second: str
    since: str
    since_value: str
    seconds: str
    left: str
    is_filling: bool


_LAG: Final = SlopeColumns(
    "lag", LAG_WINDOW, "lag_per_second", "lag_measured_since", "lag_measured_from",
    seconds="seconds_until_caught_up", left="lag", is_filling=False,
)  # fmt: skip
_BYTES: Final = SlopeColumns(
    "used_bytes", BYTES_WINDOW, "bytes_per_second", "bytes_measured_since", "bytes_measured_from",
    seconds="seconds_until_full", left="usable_bytes", is_filling=True,
)  # fmt: skip


def with_slopes(rows: pa.Table, is_same: pa.Array, is_known: pa.Array) -> pa.Table:
    """Compute the slopes that a table has columns for.

    Args:
        rows: samples by key, then by time, in one chunk; times are microseconds.
        is_same: whether a row is of the same key as the row above it.
        is_known: whether a row was computed before: it keeps its slope, whatever is above it.
    """
    for columns in (_LAG, _BYTES):
        if columns.per_second in rows.column_names:
            for name, column in _slope(rows, columns, is_same, is_known):
                rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows


def _slope(
    rows: pa.Table, columns: SlopeColumns, is_same: pa.Array, is_known: pa.Array
) -> Iterator[tuple[str, pa.Array]]:
    """Twin of ``slopes.slope_after``: yield the columns."""
    at, value = (rows[name].combine_chunks() for name in ("collected_at", columns.value))
    stored = {name: rows[name].combine_chunks() for name in (columns.since, columns.since_value, columns.per_second)}
    exists, window = value.is_valid(), pc.divide(at, columns.window)
    follows = pc.and_(pc.and_(is_same, pc.invert(is_known)), pc.and_(exists, shifted(exists)))
    is_first = pc.invert(pc.and_(follows, pc.equal(window, shifted(window)).fill_null(False)))
    since = _carried(is_first, pc.if_else(is_known, pc.coalesce(stored[columns.since], at), at))
    since_value = _carried(is_first, pc.if_else(is_known, pc.coalesce(stored[columns.since_value], value), value))
    elapsed = pc.subtract(at, shifted(since))
    is_measured = pc.and_(follows, pc.greater_equal(elapsed, columns.window // 2).fill_null(False))
    moved = pc.subtract(value, shifted(since_value)).cast(pa.float64(), safe=False)
    measured = pc.divide(moved, pc.divide(elapsed.cast(pa.float64()), float(MICROS_PER_SECOND)))
    before = pc.if_else(is_known, stored[columns.per_second], pa.scalar(None, pa.float64()))
    per_second = _carried(pc.or_(is_measured, pc.invert(follows)), pc.if_else(is_measured, measured, before))
    yield columns.since, _where(exists, since)
    yield columns.since_value, _where(exists, since_value)
    yield columns.per_second, _where(exists, per_second)
    yield columns.seconds, _seconds_left(rows[columns.left].combine_chunks(), per_second, is_filling=columns.is_filling)


def _seconds_left(left: pa.Array, per_second: pa.Array, *, is_filling: bool) -> pa.Array:
    """Twin of ``slopes.seconds_left``."""
    pace = per_second if is_filling else pc.negate(per_second)
    lasts = pc.and_(pc.greater(left, 0).fill_null(False), pc.greater(pace, 0).fill_null(False))
    return _where(lasts, pc.divide(left.cast(pa.float64(), safe=False), pace))


def _carried(begins: pa.Array, column: pa.Array) -> pa.Array:
    """Return for each row the value of the last row that begins."""
    numbers = pc.if_else(begins, row_numbers(len(column)), pa.scalar(0, pa.int64()))
    return column.take(pc.cumulative_max(numbers))


def _where(condition: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(condition, column, pa.scalar(None, column.type))
