"""Random runs: what they promise, and that they find what a cluster without one of its checks breaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming.model.constants import PRESETS, Constants, Switches
from tests.swarm.__main__ import main
from tests.swarm.schedule import Act
from tests.swarm.swarm import options_of, run_swarm, schedule_of, shrink, violation_of


def test_a_seed_is_a_run() -> None:
    for seed in (1, 2, 3):
        options = options_of(seed, Constants())
        assert options == options_of(seed, Constants())
        assert schedule_of(seed, options) == schedule_of(seed, options)
    assert len({schedule_of(seed, options_of(seed, Constants())) for seed in range(20)}) == 20


@pytest.mark.parametrize("preset", ["kraft-4.x", "kraft-3.9"])
def test_no_random_run_breaks_a_promise(preset: str) -> None:
    report = run_swarm(range(15), constants=PRESETS[preset], budget_s=600)
    assert report.failures == ()
    assert report.runs == 15
    assert report.acts > 15 * 5


@pytest.mark.long
@pytest.mark.parametrize("preset", ["kraft-4.x", "kraft-3.9"])
def test_no_random_run_of_many_breaks_a_promise(preset: str) -> None:
    assert run_swarm(range(15, 1_000), constants=PRESETS[preset], budget_s=600).failures == ()


def test_a_failure_is_shrunk_and_says_how_it_is_repeated() -> None:
    constants = Constants(switches=replace(Switches(), expand_needs_fetch_in_epoch=False))
    report = run_swarm(range(1, 1_000), constants=constants, budget_s=600)
    (failure,) = report.failures
    drawn = schedule_of(failure.seed, failure.options)
    assert 0 < len(failure.schedule) < len(drawn)
    again = violation_of(failure.options, failure.schedule)
    assert again is not None
    assert (again.invariant, str(again)) == (failure.invariant, failure.message)
    assert f"python -m tests.swarm --seed {failure.seed}" in str(failure)
    assert all(str(act) in str(failure) for act in failure.schedule)


def test_a_run_of_the_command_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("1 runs, ")
    assert line.endswith(" invariants after every step: no violation")


def test_shrinking_keeps_what_is_needed_and_nothing_else() -> None:
    acts = [Act(number * 150, "kill", (number,)) for number in range(20)]
    left = shrink(acts, lambda fewer: {3, 11} <= {act.subject[0] for act in fewer})
    assert left == (Act(0, "kill", (3,)), Act(0, "kill", (11,)))
