"""The lag rules of ``contracts.health`` on Arrow columns, for a million rows at once.

A property test compares both on generated rows. Depends on Arrow and the columns of the sample tables. Their slopes are
in ``delta.slopes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping

# Column -> (begin, end): its value is end - begin, at least 0.
DISTANCES: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "replica_offsets": {"lag": ("log_end_offset", "leader_log_end_offset")},
    "group_offsets": {
        "lag": ("committed_offset", "high_watermark"),
        "stable_lag": ("committed_offset", "last_stable_offset"),
        "records_lost": ("committed_offset", "log_start_offset"),
    },
    "log_directories": {"used_bytes": ("usable_bytes", "total_bytes")},
}


def distance(begin: pa.Array, end: pa.Array) -> pa.Array:
    """Twin of ``health.lag`` and ``health.records_lost_unread``."""
    return pc.max_element_wise(pc.subtract(end, begin), pa.scalar(0, pa.int64()), skip_nulls=False)


def behind_since(rows: pa.Table, is_same: pa.Array, is_known: pa.Array) -> pa.Array:
    """Twin of ``health.behind_since``, folded over the samples of every replica.

    Args:
        rows: samples of ``replica_offsets`` by replica, then by time, in one chunk.
        is_same: whether a row is of the same replica as the row above it.
        is_known: whether a row was computed before: it keeps its ``behind_since``, whatever is above it.

    Returns:
        ``behind_since`` of each row, microseconds; null for none.
    """
    columns = {item.name: rows[item.name].combine_chunks() for item in rows.schema}
    is_behind = pc.greater(columns["lag"], 0).fill_null(False)
    was_behind = pc.and_(is_same, shifted(is_behind))
    had_all = pc.greater_equal(columns["log_end_offset"], shifted(columns["leader_log_end_offset"]))
    begins = pc.or_(is_known, pc.if_else(was_behind, had_all.fill_null(False), pa.scalar(True)))
    begun = pc.cumulative_max(pc.if_else(begins, row_numbers(rows.num_rows), pa.scalar(0, pa.int64())))
    since = pc.if_else(is_known, columns["behind_since"], columns["collected_at"])
    return pc.if_else(is_behind, since.take(begun), pa.scalar(None, since.type))


def row_numbers(count: int) -> pa.Array:
    """Return 0, 1, 2 and so on."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def shifted(column: pa.Array) -> pa.Array:
    """Move every value one row down; the first is null, or false."""
    first = pa.array([False if pa.types.is_boolean(column.type) else None], column.type)
    return pa.concat_arrays([first, column])[: len(column)]
