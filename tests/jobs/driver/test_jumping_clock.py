"""The clock of the job's machine jumps, ahead and back, between batches and starts: the tables are the same."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from streaming.delta.log import maintenance
from tests.end_to_end.stories import long_story
from tests.jobs.driver.test_power_cut import Disk, Job, check_whole

if TYPE_CHECKING:
    from pathlib import Path

JUMPS = (-7_200, -60, 0, 60, 7_200, 172_800)  # seconds


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dice, now, ahead = random.Random(1), time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: now() + ahead[0] * 1_000_000_000)
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)
    monkeypatch.setattr(maintenance, "COMMITS_BETWEEN_ROUNDS", 5)
    monkeypatch.setattr(maintenance, "LOG_ENTRIES", 8)
    disk, story = Disk(tmp_path, dice), long_story(seed=1, steps=70)
    job, starts = Job(disk, story), 1

    while job.position < len(story) - 1:
        ahead[0] = dice.choice(JUMPS)
        job.apply(dice.randrange(1, 12))
        job.follow()
        if dice.random() < 0.3:
            job, starts = Job(disk, story), starts + 1

    assert starts > 3
    check_whole(disk, story)
