"""What brokers counted against what was recorded: over generated lives of a meter, and as samples and changes come."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.advice import reconciliation
from streaming.changes.advice.reconciliation import (
    FORGOTTEN_AFTER,
    METRIC_OF,
    RECENT,
    Meter,
    MeterKey,
    MeterSample,
    ReconciliationWindows,
    RecordedChange,
    may_have_counted,
)
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER, BrokerId, Micros
from streaming.sources.broker_metrics import METRICS

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


class MeterStep(NamedTuple):
    """What happens at one moment, in this order."""

    changes: int
    unseen: int
    restarts: bool
    is_sampled: bool


STEPS = st.lists(st.builds(MeterStep, st.integers(0, 3), st.integers(0, 2), st.booleans(), st.booleans()), max_size=30)


@given(before=st.integers(0, 5), steps=STEPS, delay=st.integers(0, 5))
def test_what_was_missed_is_counted_and_not_recorded(before: int, steps: list[MeterStep], delay: int) -> None:
    """Records come late by some steps; restarts are noticed only where the meter then stands lower."""
    meter, it = before, reconciliation.open_window(Micros(0), before)
    told: list[int] = []  # the moments of recorded changes on their way to us
    true_missed = lost = 0
    for at, step in enumerate(steps, start=1):
        meter += step.changes + step.unseen
        true_missed += step.unseen
        told += [10 * at] * step.changes
        while told and told[0] <= 10 * (at - delay):
            moment = Micros(told.pop(0))
            it = reconciliation.with_recorded_change(it, moment, moment)
        if step.restarts:
            lost, meter = lost + meter, 0
        if step.is_sampled:
            it = reconciliation.with_sample(it, Micros(10 * at + 5), meter)
    for moment in told:
        it = reconciliation.with_recorded_change(it, Micros(moment), Micros(moment))
    it = reconciliation.with_sample(it, Micros(10 * len(steps) + 9), meter)

    restarts = sum(step.restarts for step in steps)
    assert it.missed <= true_missed
    assert it.ahead == ()
    assert it.resets <= restarts
    assert it.recorded == sum(step.changes for step in steps)
    if not restarts:
        assert it.missed == true_missed
        assert it.counted == meter - before


@given(STEPS)
def test_samples_and_records_that_come_again_or_late_change_nothing(steps: list[MeterStep]) -> None:
    it = reconciliation.open_window(Micros(100), 7)
    for at, step in enumerate(steps, start=101):
        it = reconciliation.with_sample(it, Micros(at), 7 + step.changes)
    assert reconciliation.with_sample(it, it.until, 99) == it
    assert reconciliation.with_sample(it, Micros(100), 99) == it
    assert reconciliation.with_recorded_change(it, Micros(10), Micros(99)) == it


def test_a_change_within_a_poll_that_spans_the_first_sample_may_have_been_counted() -> None:
    it = reconciliation.with_recorded_change(reconciliation.open_window(Micros(100), 0), Micros(95), Micros(105))
    assert it.recorded == 1


@pytest.mark.parametrize(
    ("meter", "leaders", "causes", "evidence", "expected"),
    [
        (Meter.ISR_SHRINKS, (ONE, ONE), [Cause.LAG], Evidence.PROVEN, {ONE}),
        (Meter.ISR_SHRINKS, (ONE, ONE), [Cause.LEADER_STALL, Cause.LAG], Evidence.AMBIGUOUS, {ONE}),
        (Meter.ISR_SHRINKS, (ONE, ONE), [Cause.FENCED], Evidence.PROVEN, set()),
        (Meter.ISR_SHRINKS, (ONE, ONE), [Cause.CONTROLLED_SHUTDOWN], Evidence.PROVEN, set()),
        (Meter.ISR_SHRINKS, (ONE, TWO), [Cause.FENCED], Evidence.PROVEN, set()),
        (Meter.ISR_SHRINKS, (ONE, TWO), [Cause.UNKNOWN], Evidence.INFERRED, {ONE, TWO}),
        (Meter.ISR_SHRINKS, (ONE, NO_LEADER), [Cause.UNKNOWN], Evidence.INFERRED, {ONE}),
        (Meter.ISR_EXPANDS, (ONE, ONE), [Cause.EXPAND], Evidence.PROVEN, {ONE}),
        (Meter.ISR_EXPANDS, (ONE, ONE), [Cause.REASSIGNMENT], Evidence.PROVEN, {ONE}),
        (Meter.ISR_EXPANDS, (ONE, TWO), [Cause.EXPAND], Evidence.PROVEN, set()),
        (Meter.ISR_EXPANDS, (TWO, ONE), [Cause.EXPAND], Evidence.PROVEN, set()),
        (Meter.ISR_EXPANDS, (NO_LEADER, ONE), [Cause.UNCLEAN_ELECTION], Evidence.PROVEN, set()),
    ],
)
def test_only_what_a_leader_asks_for_moves_its_meters(
    meter: Meter, leaders: tuple[BrokerId, BrokerId], causes: list[Cause], evidence: Evidence, expected: set[BrokerId]
) -> None:
    assert may_have_counted(meter, (THREE,), leaders, causes, evidence) == expected
    assert may_have_counted(meter, (), leaders, causes, evidence) == set()


def test_the_metrics_are_those_that_are_scraped() -> None:
    assert set(METRIC_OF.values()) <= METRICS


START, SECOND = 1_700_000_000_000_000, 1_000_000
ONE, OTHER = (MeterKey("c1", BrokerId(broker), Meter.ISR_SHRINKS) for broker in (1, 2))


def sample(key: MeterKey, seconds: float, value: int) -> MeterSample:
    return MeterSample(Micros(START + int(seconds * SECOND)), key, value, "main")


def change(key: MeterKey, seconds: float) -> RecordedChange:
    at = Micros(START + int(seconds * SECOND))
    return RecordedChange(key, at, at)


def reported_by(seconds: float) -> list[tuple[str, str, Micros]]:
    return [("c1", "metadata_log", Micros(START + int(seconds * SECOND)))]


@pytest.fixture
def windows() -> ReconciliationWindows:
    made = ReconciliationWindows()
    made.follow([], reported_by(0))
    return made


def counted(windows: ReconciliationWindows) -> dict[int, tuple[int, int]]:
    """What each broker counted, and what was recorded of it."""
    return {key.broker: (window.counted, window.recorded) for key, _, window in windows.windows()}


def test_a_sample_waits_until_the_changes_before_it_are_recorded(windows: ReconciliationWindows) -> None:
    windows.hold([sample(ONE, 0, 5), sample(ONE, 30, 6)])
    windows.follow([], reported_by(29))
    assert windows.settle()
    assert counted(windows) == {1: (0, 0)}
    windows.follow([change(ONE, 20)], reported_by(30))
    assert windows.settle()
    assert counted(windows) == {1: (1, 1)}
    assert not windows.settle()


def test_a_change_is_kept_for_a_meter_whose_first_sample_comes_after_it(windows: ReconciliationWindows) -> None:
    windows.hold([sample(OTHER, 0, 0), sample(OTHER, 100, 0)])
    windows.follow([change(ONE, 60)], reported_by(100))
    windows.settle()
    windows.hold([sample(ONE, 50, 3), sample(ONE, 110, 4)])
    windows.follow([], reported_by(110))
    windows.settle()
    assert counted(windows)[1] == (1, 1)


def test_a_first_sample_older_than_changes_are_kept_for_opens_no_window(windows: ReconciliationWindows) -> None:
    newest = 2 * RECENT / SECOND
    windows.follow([change(ONE, 10)], reported_by(newest))
    windows.hold([sample(OTHER, newest, 0)])
    windows.settle()
    windows.hold([sample(ONE, 5, 3)])
    windows.settle()
    assert counted(windows) == {2: (0, 0)}


def test_a_meter_that_says_nothing_for_long_begins_a_new_window(windows: ReconciliationWindows) -> None:
    later = FORGOTTEN_AFTER / SECOND + 1
    windows.hold([sample(ONE, 0, 5), sample(OTHER, 0, 5)])
    windows.follow([], reported_by(0))
    windows.settle()
    windows.hold([sample(OTHER, later, 7)])
    windows.follow([], reported_by(later))
    windows.settle()
    assert counted(windows) == {2: (2, 0)}
    windows.hold([sample(ONE, later + 1, 9)])
    windows.follow([], reported_by(later + 1))
    windows.settle()
    assert counted(windows) == {1: (0, 0), 2: (2, 0)}
