"""The lag rules on Arrow columns, compared with the rules on single values that they are twins of."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts import health
from streaming.delta.samples.newest import lag_distance

offsets = st.none() | st.integers(0, 2**62)


@given(st.lists(st.tuples(offsets, offsets), min_size=1, max_size=20))
def test_a_distance_of_columns_is_the_lag_and_the_lost_records_of_each_row(
    rows: list[tuple[int | None, int | None]],
) -> None:
    begins, ends = (pa.array(column, pa.int64()) for column in zip(*rows, strict=True))
    found = lag_distance(begins, ends).to_pylist()
    assert found == [health.lag(begin, end) for begin, end in rows]
    assert found == [health.records_lost_unread(committed, log_start) for committed, log_start in rows]
