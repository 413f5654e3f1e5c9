from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from streaming.runtime.garbage import collected_after, never_collected

LONG_LIVED = """
import duckdb
from streaming.runtime.garbage import never_collected
with never_collected():
    duckdb.connect().execute("SELECT 1").fetchall()
"""


def test_what_is_never_collected_is_freed_when_the_program_ends() -> None:
    """DuckDB reports what is left of it on the terminal, a hundred lines."""
    ended = subprocess.run([sys.executable, "-c", LONG_LIVED], capture_output=True, text=True, check=True)

    assert ended.stdout + ended.stderr == ""


def test_the_collector_waits_for_the_end_of_a_batch_and_then_goes_on() -> None:
    with collected_after():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_after_a_failure_nothing_is_kept_for_ever() -> None:
    """What other tests froze may be freed meanwhile; freezing would add every object of the process."""
    before = gc.get_freeze_count()
    with pytest.raises(ValueError, match="no number"), never_collected():
        int("no number")
    assert gc.get_freeze_count() <= before
