"""The end of a process while a daemon thread is in delta-rs, which without care is a segmentation fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streaming.delta.changes.log import ChangeLog

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, threading, time
from streaming.commands import main
from streaming.delta.log.storage import open_table
from pathlib import Path

def read_for_ever(table):
    while True:
        open_table(table)

threading.Thread(target=read_for_ever, args=[Path(sys.argv[1])], daemon=True).start()
time.sleep(0.2)
print("printed before, and not yet written")
main(sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("arguments", "code"), [(("explain", "--help"), 0), (("state", "--quux"), 2), (("state", "--tables", "none"), 2)]
)
def test_a_daemon_thread_in_delta_rs_does_not_change_the_exit_code(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    ChangeLog(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "partition_changes"), *arguments],
        capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (ran.returncode, "printed before" in ran.stdout) == (code, True), ran.stderr
