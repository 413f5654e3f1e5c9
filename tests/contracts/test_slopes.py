"""How fast a sampled value moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.identifiers import Micros
from streaming.contracts.slopes import Slope, seconds_left, slope_after

WINDOW = Micros(60_000_000)
SECOND = 1_000_000


def after(samples: list[tuple[int, int | None]]) -> Slope | None:
    slope: Slope | None = None
    for second, value in samples:
        slope = slope_after(slope, Micros(second * SECOND), value, WINDOW)
    return slope


def test_before_half_a_window_there_is_no_slope_and_then_one_over_all_of_it() -> None:
    assert after([(60, 900), (89, 0)]) == Slope(Micros(60 * SECOND), 900, None)
    assert after([(60, 900), (70, 0), (90, 600)]) == Slope(Micros(60 * SECOND), 900, -10.0)


def test_the_first_sample_of_a_window_is_what_the_next_ones_are_compared_with() -> None:
    """So that a turn is followed: until half a window after it the slope before is held."""
    rising = [(60 + second, second) for second in range(0, 61, 10)]
    assert after(rising) == Slope(Micros(120 * SECOND), 60, 1.0)
    assert after([*rising, (130, 30), (140, 20)]) == Slope(Micros(120 * SECOND), 60, 1.0)
    assert after([*rising, (130, 30), (140, 20), (150, 0)]) == Slope(Micros(120 * SECOND), 60, -2.0)


def test_after_an_unknown_value_it_begins_anew() -> None:
    assert after([(60, 900), (90, 600), (100, None)]) is None
    assert after([(60, 900), (90, 600), (100, None), (110, 500)]) == Slope(Micros(110 * SECOND), 500, None)


@given(
    st.integers(0, 10**12), st.integers(-1_000, 1_000),
    st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(0, 10**15),
)  # fmt: skip
def test_the_slope_of_a_straight_line_is_its_own_however_it_is_sampled(
    begin: int, per_second: int, gaps: list[int], moment: int
) -> None:
    """And it is there as soon as samples have come for half a window since the last one that is compared with."""
    at, slope, seconds = moment, None, 0
    for gap in [0, *gaps]:
        at, seconds = at + gap * SECOND, seconds + gap
        before, slope = slope, slope_after(slope, Micros(at), begin + per_second * seconds, WINDOW)
        assert slope is not None
        assert slope.per_second is None or abs(slope.per_second - per_second) < 1e-9
        if before is not None and at - before.since >= WINDOW // 2:
            assert slope.per_second is not None
        assert at // WINDOW == slope.since // WINDOW


@given(st.none() | st.integers(0, 10**12), st.none() | st.floats(-(10**9), 10**9))
def test_what_does_not_shrink_has_no_end(distance: int | None, per_second: float | None) -> None:
    left = seconds_left(distance, per_second)
    assert (left is not None) == bool(distance and per_second is not None and per_second < 0)
    assert left is None or left >= 0
