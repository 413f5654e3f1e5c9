"""A disk of the tables that is full at any byte: the job says so, and goes on where it was once there is space."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_full_disk_at_any_byte_costs_and_doubles_nothing(tmp_path: Path) -> None:
    apart = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    script = [*apart, sys.executable, "-m", "tests.jobs.driver.small_disk", str(tmp_path)]

    run = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout) > 5
