"""Work that moves and work that hangs, by a clock of the test."""

from __future__ import annotations

from streaming import movement
from streaming.movement import STARTING_SECONDS, STILL_SECONDS, Motion


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_work_hangs_a_minute_after_it_has_moved_last_and_later_while_it_starts() -> None:
    clock = Clock()
    work = Motion(clock)
    clock.now += STARTING_SECONDS
    assert not work.hangs()
    clock.now += 1
    assert work.hangs()
    work.note()
    clock.now += STILL_SECONDS
    assert not work.hangs()
    clock.now += 1
    assert work.hangs()
    assert not work.hangs(since=clock.now - 5)
    assert not work.hangs(limit=2 * STILL_SECONDS)
    work.begin()
    assert not work.hangs()


def test_what_a_thread_does_moves_the_work_that_it_is_of_however_long_it_takes() -> None:
    clock = Clock()
    work = Motion(clock)
    for _ in movement.noted(range(3)):  # of no work
        clock.now += STARTING_SECONDS + 1
    assert work.hangs()
    with work.of_this_thread():
        for number in movement.noted(range(10_000)):
            clock.now += 0.1
            assert not work.hangs(), number
    clock.now += STILL_SECONDS + 1
    movement.note()
    assert work.hangs()
