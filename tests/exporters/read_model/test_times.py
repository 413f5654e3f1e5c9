"""Times as people write them."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.read_model.times import SECOND, Clock, micros_of, span
from streaming.errors import ConfigurationError

NOW = micros_of(dt.datetime(2026, 11, 21, 17, 8, 51, tzinfo=dt.UTC))


def utc(*parts: int) -> int:
    return micros_of(dt.datetime(*parts, tzinfo=dt.UTC))  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("15m", NOW - 900 * SECOND),
        ("2h ago", NOW - 7_200 * SECOND),
        ("1.5d", NOW - 129_600 * SECOND),
        ("now", NOW),
        ("today", utc(2026, 11, 21)),
        ("Yesterday", utc(2026, 11, 20)),
        ("9:30", utc(2026, 11, 21, 9, 30)),
        ("yesterday 10:00", utc(2026, 11, 20, 10)),
        ("Today 9:30", utc(2026, 11, 21, 9, 30)),
        ("10:30:05", utc(2026, 11, 21, 10, 30, 5)),
        ("yesterday 9:30:05", utc(2026, 11, 20, 9, 30, 5)),
        ("2026-03-01", utc(2026, 3, 1)),
        ("2026-03-01T10:30", utc(2026, 3, 1, 10, 30)),
        ("2026-03-01T10:30+02:00", utc(2026, 3, 1, 8, 30)),
        ("2026-03-01T10:30 02:00", utc(2026, 3, 1, 8, 30)),
        ("2026-03-01 10:30:00 0530", utc(2026, 3, 1, 5)),
        ("2026-03-01 10:30", utc(2026, 3, 1, 10, 30)),
        ("2026-03-01T10:30:00.250Z", utc(2026, 3, 1, 10, 30) + SECOND // 4),
    ],
)
def test_a_time_is_parsed_as_people_write_it(text: str, moment: int) -> None:
    assert Clock(NOW).read(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "15x",
        "25:00",
        "now 10:00",
        "yesterday 25:00",
        "2026-13-01",
        "999999999999w",
        "9999-12-31T23:59-14:00",
        "0001-01-01T00:00+14:00",
        "10:30 02:00",
    ],
)
def test_a_text_that_is_not_a_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the time .*; write for example 15m, 2h"):
        Clock(NOW).read(text)


@given(st.integers(0, 4_000_000_000_000))
def test_a_formatted_time_is_parsed_to_the_same_time(millis: int) -> None:
    for local in (False, True):
        clock = Clock(NOW, local)
        assert clock.read(clock.iso(millis * 1_000)) == millis * 1_000


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The local time zone is one whose clocks are put back at 2026-10-25T01:00:00Z."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_now_is_now_also_in_the_hour_that_a_local_clock_shows_twice() -> None:
    for minutes in (-30, 30):
        now = utc(2026, 10, 25, 1) + minutes * 60 * SECOND
        clock = Clock(now, local=True)
        assert (clock.read("now"), clock.read("1m")) == (now, now - 60 * SECOND)
        assert clock.read(clock.iso(now)) == now


def test_a_screen_shows_the_day_only_of_other_days() -> None:
    clock = Clock(NOW)
    assert [clock.short(NOW), clock.short(NOW - 86_400 * SECOND)] == ["17:08:51.000", "11-20 17:08:51.000"]


@given(st.floats(0, 10_000_000))
def test_a_span_has_at_most_two_units(seconds: float) -> None:
    assert sum(letter.isalpha() for letter in span(seconds)) <= 2
