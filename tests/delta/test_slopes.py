"""Slopes as Arrow columns, compared with the rule on single values that they are the twin of."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.identifiers import Micros
from streaming.contracts.slopes import LAG_WINDOW, Slope, seconds_left, slope_after
from streaming.delta.samples.newest import with_slopes
from tests.examples import examples

# Gaps of a third of half a window and the like, so that every border is met and crossed.
STEPS = [0, LAG_WINDOW // 6, LAG_WINDOW // 3, LAG_WINDOW // 2, LAG_WINDOW // 2 - 1, LAG_WINDOW]
SAMPLE = st.tuples(st.sampled_from(STEPS), st.none() | st.integers(0, 1_000) | st.integers(0, 2**62))
OF_KEY = st.tuples(st.integers(0, 2 * LAG_WINDOW), st.booleans(), st.lists(SAMPLE, min_size=1, max_size=12))
TYPES = {"key": pa.int64(), "collected_at": pa.int64(), "lag": pa.int64(), "lag_per_second": pa.float64(),
         "seconds_until_caught_up": pa.float64(), "lag_measured_since": pa.int64(),
         "lag_measured_from": pa.int64(), "known": pa.bool_()}  # fmt: skip


def columns_of(slope: Slope | None, lag: int | None) -> dict[str, Any]:
    since, since_value, per_second = slope or (None, None, None)
    return {"lag_measured_since": since, "lag_measured_from": since_value, "lag_per_second": per_second,
            "seconds_until_caught_up": seconds_left(lag, per_second)}  # fmt: skip


def told_one_by_one(key: int, begin: int, samples: list[tuple[int, int | None]]) -> list[dict[str, Any]]:
    found, at, slope = [], begin, None
    for step, lag in samples:
        at += step
        slope = slope_after(slope, Micros(at), lag, Micros(LAG_WINDOW))
        found.append({"key": key, "collected_at": at, "lag": lag, **columns_of(slope, lag)})
    return found


@settings(max_examples=examples(20))
@given(st.lists(OF_KEY, min_size=1, max_size=4))
def test_the_slopes_of_columns_are_those_of_one_sample_after_the_other(
    keys: list[tuple[int, bool, list[tuple[int, int | None]]]],
) -> None:
    """The first half of the samples of some keys was computed before: the last row of it is what a table holds."""
    expected: list[dict[str, Any]] = []
    given_rows: list[dict[str, Any]] = []
    for key, (begin, is_stored, samples) in enumerate(keys):
        rows = told_one_by_one(key, begin, samples)
        rows = rows[len(rows) // 2 :] if is_stored else rows
        expected += rows
        given_rows += [
            {**row, "known": is_stored and not place}
            if is_stored and not place
            else {**dict.fromkeys(TYPES), **{name: row[name] for name in ("key", "collected_at", "lag")}}
            for place, row in enumerate(rows)
        ]
    table = pa.Table.from_pylist(given_rows, schema=pa.schema(TYPES.items()))
    same = [place > 0 and row["key"] == given_rows[place - 1]["key"] for place, row in enumerate(given_rows)]

    found = with_slopes(table, pa.array(same), table["known"].combine_chunks().fill_null(False))

    assert found.drop_columns(["known"]).to_pylist() == [{name: row[name] for name in TYPES if name != "known"}
                                                         for row in expected]  # fmt: skip


def test_a_row_that_was_written_before_there_were_slopes_is_the_first_to_compare_with() -> None:
    rows = [{"key": 1, "collected_at": at, "lag": lag} for at, lag in ((0, 900), (LAG_WINDOW // 2, 300))]
    table = pa.Table.from_pylist(rows, schema=pa.schema(TYPES.items()))

    found = with_slopes(table, pa.array([False, True]), pa.array([True, False]))

    assert found["lag_per_second"].to_pylist() == [None, -20.0]
    assert found["seconds_until_caught_up"].to_pylist() == [None, 15.0]
