"""A few runs of ``make chaos``, which draws from all harms; what each must be answered with is in ``harms``.

Each harm alone is in quick tests: kills and power cuts in ``tests/end_to_end/test_kills.py`` and
``tests/jobs/shards/test_power_cut.py``, full disks there and in
``tests/bus/test_capacity.py``, tables and buses that were restored or lost in ``tests/jobs/test_starting_positions.py``
and ``tests/jobs/test_replaced_log.py``, two drivers in ``tests/delta/test_table_lock.py`` and ``test_change_log.py``,
clocks in ``tests/jobs/shards/test_future_times.py`` and ``test_power_cut.py``.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.chaos.harms import HARMS
from tests.chaos.schedule import drawn


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(
    "harms",
    [
        ("publish_nonsense", "copy_collector", "jump_job_clock", "fill_bus", "jump_collector_clock", "kill_python"),
        ("fill_tables", "fill_checkpoint", "second_driver"),
        ("lose_last_offsets", "cut_power", "tear_metadata"),
        ("restore_tables", "drop_column", "replace_bus"),
    ],
    ids="+".join,
)
def test_nothing_is_lost_and_nothing_is_doubled(harms: tuple[str, ...]) -> None:
    script = [sys.executable, "-m", "tests.chaos", "--seed", "1", "--harms", ",".join(harms)]
    run = subprocess.run(script, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]


def test_a_seed_is_a_schedule_and_every_harm_is_drawn() -> None:
    schedules = [drawn(seed) for seed in range(100)]
    assert schedules == [drawn(seed) for seed in range(100)]
    assert {act.harm for schedule in schedules for act in schedule.acts} == set(HARMS)
