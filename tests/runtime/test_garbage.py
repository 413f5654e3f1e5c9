from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from streaming.runtime.memory import collected_after, never_collected

LONG_LIVED = """
import duckdb
from streaming.runtime.memory import never_collected
with never_collected():
    duckdb.connect().execute("SELECT 1").fetchall()
"""

SELDOM = """
import gc, sys, threading, time, weakref
from streaming.runtime import memory
class Node: pass
def cycle():
    node = Node(); node.self = node
    return weakref.ref(node)
walks = []
gc.callbacks.append(lambda phase, info: walks.append(info["generation"]) if phase == "start" else None)
memory.SECONDS_BETWEEN_FULL_COLLECTIONS = float(sys.argv[1])
memory.collect_seldom()
held = Node(); held.self = held; old = weakref.ref(held)
gc.collect(1)
del held  # garbage that no young collection looks at any more
states = [tuple([number, []]) for number in range(1_000_000)]
young = cycle()
gc.collect(0)
time.sleep(float(sys.argv[2]))
print(walks.count(2), young() is None, old() is None)
"""


def test_a_process_with_a_large_state_is_walked_whole_once_an_hour_only() -> None:
    made = [sys.executable, "-c", SELDOM]
    assert subprocess.run([*made, "3600", "0"], capture_output=True, text=True, check=True).stdout == "0 True False\n"
    walked = subprocess.run([*made, "0.1", "2"], capture_output=True, text=True, check=True).stdout
    assert walked.split()[1:] == ["True", "True"]
    assert int(walked.split()[0]) >= 1


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
