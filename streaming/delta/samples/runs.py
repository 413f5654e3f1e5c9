"""Columns of rows that are sorted into runs, such as the samples of one key in order of time."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def row_numbers(count: int) -> pa.Array:
    """Return 0, 1, 2 and so on."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def shifted(column: pa.Array) -> pa.Array:
    """Move every value one row down; the first is null, or false."""
    first = pa.array([False if pa.types.is_boolean(column.type) else None], column.type)
    return pa.concat_arrays([first, column])[: len(column)]


def carried(begins: pa.Array, column: pa.Array) -> pa.Array:
    """Return for each row the value of the last row where ``begins`` is true."""
    numbers = pc.if_else(begins, row_numbers(len(column)), pa.scalar(0, pa.int64()))
    return column.take(pc.cumulative_max(numbers))


def where(condition: pa.Array, column: pa.Array) -> pa.Array:
    """Return the values where a condition holds, and null elsewhere."""
    return pc.if_else(condition, column, pa.scalar(None, column.type))
