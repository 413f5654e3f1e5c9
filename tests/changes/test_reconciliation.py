"""What brokers counted against what was recorded, over generated lives of a meter."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.advice import reconciliation
from streaming.changes.advice.reconciliation import METRIC_OF, Meter, may_have_counted
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
def test_what_was_missed_is_what_the_meter_counted_and_nobody_recorded(
    before: int, steps: list[MeterStep], delay: int
) -> None:
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
