"""The order in which the observations of several sources are folded."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.fold import merged

REPORTED = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=20).map(
    lambda pairs: [(source, moment, (source, number, moment)) for number, (source, moment) in enumerate(pairs)]
)


@given(REPORTED)
def test_each_source_keeps_its_order_and_nothing_is_lost(reported: list[tuple[str, int, tuple[str, int, int]]]) -> None:
    order = merged(reported)

    assert sorted(order) == sorted(item for _, _, item in reported)
    for _, items in groupby(sorted(order, key=lambda item: item[0]), lambda item: item[0]):
        numbers = [number for _, number, _ in items]
        assert numbers == sorted(numbers)


def test_sources_are_merged_by_time_and_a_clock_that_runs_back_is_held() -> None:
    assert merged([("a", 1, "a1"), ("a", 5, "a2"), ("a", 2, "a3"), ("b", 3, "b1"), ("b", 6, "b2")]) == [
        "a1", "b1", "a2", "a3", "b2",
    ]  # fmt: skip
