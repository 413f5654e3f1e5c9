"""Samples of meters laid beside recorded changes: which wait, which are forgotten, and when a window starts over."""

from __future__ import annotations

import pytest

from streaming.changes.advice.reconciliation import (
    FORGOTTEN_AFTER,
    RECENT,
    Meter,
    MeterKey,
    MeterSample,
    ReconciliationWindows,
    RecordedChange,
)
from streaming.contracts.identifiers import BrokerId, Micros

START, SECOND = 1_700_000_000_000_000, 1_000_000
ONE, OTHER = (MeterKey("c1", BrokerId(broker), Meter.ISR_SHRINKS) for broker in (1, 2))


def sample(key: MeterKey, seconds: float, value: int) -> MeterSample:
    return MeterSample(Micros(START + int(seconds * SECOND)), key, value, "main")


def change(key: MeterKey, seconds: float) -> RecordedChange:
    at = Micros(START + int(seconds * SECOND))
    return RecordedChange(key, at, at)


def until(seconds: float) -> list[tuple[str, str, Micros]]:
    return [("c1", "metadata_log", Micros(START + int(seconds * SECOND)))]


@pytest.fixture
def windows() -> ReconciliationWindows:
    made = ReconciliationWindows()
    made.follow([], until(0))
    return made


def counted(windows: ReconciliationWindows) -> dict[int, tuple[int, int]]:
    """What each broker counted, and what was recorded of it."""
    return {key.broker: (window.counted, window.recorded) for key, _, window in windows.windows()}


def test_a_sample_waits_until_the_changes_before_it_are_recorded(windows: ReconciliationWindows) -> None:
    windows.hold([sample(ONE, 0, 5), sample(ONE, 30, 6)])
    windows.follow([], until(29))
    assert windows.settle()
    assert counted(windows) == {1: (0, 0)}

    windows.follow([change(ONE, 20)], until(30))

    assert windows.settle()
    assert counted(windows) == {1: (1, 1)}
    assert not windows.settle()


def test_a_change_is_kept_for_a_meter_whose_first_sample_comes_after_it(windows: ReconciliationWindows) -> None:
    windows.hold([sample(OTHER, 0, 0), sample(OTHER, 100, 0)])
    windows.follow([change(ONE, 60)], until(100))
    windows.settle()
    windows.hold([sample(ONE, 50, 3), sample(ONE, 110, 4)])
    windows.follow([], until(110))
    windows.settle()

    assert counted(windows)[1] == (1, 1)


def test_a_first_sample_older_than_changes_are_kept_for_opens_no_window(windows: ReconciliationWindows) -> None:
    newest = 2 * RECENT / SECOND
    windows.follow([change(ONE, 10)], until(newest))
    windows.hold([sample(OTHER, newest, 0)])
    windows.settle()
    windows.hold([sample(ONE, 5, 3)])

    windows.settle()

    assert counted(windows) == {2: (0, 0)}


def test_a_meter_that_says_nothing_for_long_begins_a_new_window(windows: ReconciliationWindows) -> None:
    later = FORGOTTEN_AFTER / SECOND + 1
    windows.hold([sample(ONE, 0, 5), sample(OTHER, 0, 5)])
    windows.follow([], until(0))
    windows.settle()
    windows.hold([sample(OTHER, later, 7)])
    windows.follow([], until(later))
    windows.settle()
    assert counted(windows) == {2: (2, 0)}

    windows.hold([sample(ONE, later + 1, 9)])
    windows.follow([], until(later + 1))
    windows.settle()

    assert counted(windows) == {1: (0, 0), 2: (2, 0)}
