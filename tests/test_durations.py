"""Durations: one spelling, for the configuration and for options."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.durations import duration_text, seconds_of
from streaming.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("0s", 0), ("250ms", 0.25), ("0.1s", 0.1), ("5s", 5), ("1.5m", 90), ("1h30m", 5_400), ("12h", 43_200)),
        *(("90d", 7_776_000), ("2w", 1_209_600), ("1d1ms", 86_400.001)),
    ],
)
def test_a_duration_is_read_with_its_units(text: str, seconds: float) -> None:
    assert seconds_of("--for", text) == seconds


@pytest.mark.parametrize("number", [5, 0.5, "5", " 30 "])
def test_a_number_without_a_unit_is_refused_with_what_it_may_mean(number: object) -> None:
    written = str(number).strip()
    sentence = f'--for is {written}, without a unit; write "{written}s", "{written}m", "{written}h" or "{written}d"'
    with pytest.raises(ConfigurationError, match=f"^{re.escape(sentence)}$"):
        seconds_of("--for", number)


@pytest.mark.parametrize(
    "text", ["", "s", "5 s", "-5s", "5s ", "m5", "1..5s", "5S", "5y", "1h-5m", "forever", True, [], -1]
)
def test_what_is_no_duration_is_refused_with_examples(text: object) -> None:
    with pytest.raises(ConfigurationError, match=f'^--for is {re.escape(repr(text))}; write a duration .* "90d"$'):
        seconds_of("--for", text)


def test_a_duration_without_end_is_one_without_end() -> None:
    for digits in (306, 308, 400):
        assert duration_text(seconds_of("--for", f"{'9' * digits}d")) == "forever"


@given(st.integers(0, 10**12))
def test_a_formatted_duration_is_read_as_the_same(millis: int) -> None:
    assert seconds_of("--for", duration_text(millis / 1_000)) == millis / 1_000
