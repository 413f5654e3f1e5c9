"""Old versions as presets: windows, and a table of all differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streaming.model.constants import PRESETS, Constants, table


def test_the_table_of_presets_is_the_one_that_was_read(golden: Callable[[str, str], None]) -> None:
    rows = table()
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    golden("presets.txt", "\n".join(lines) + "\n")


def test_the_newest_preset_is_the_defaults_and_the_table_says_who_differs() -> None:
    assert PRESETS["kraft-4.x"] == Constants()
    assert ("replica_lag_time_max_ms", "30000", "", "", "10000", "10000") in table()


@pytest.mark.parametrize(
    ("preset", "session_ms"), [("legacy-2.4", 6_000), ("zk-3.x", 18_000), ("kraft-3.9", 9_000), ("kraft-4.x", 9_000)]
)
def test_statement_11_the_session_of_each_version_decides_when_a_dead_broker_is_missed(
    lab: Any, preset: str, session_ms: int
) -> None:
    it = lab(preset=preset, start_up_ms=0)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.run(20_000)
    it.cluster.kill(3)
    # A broker was heard of at most a third of a session before, and sessions are looked at in steps.
    it.run(20_000 + session_ms * 2 // 3 - 1)
    assert it.state(key).isr == (1, 2, 3)
    it.run(20_000 + session_ms + 2_100)
    assert it.state(key).isr == (1, 2)


@pytest.mark.parametrize(("preset", "window_ms"), [("legacy-2.4", 10_000), ("zk-3.x", 30_000), ("kraft-4.x", 30_000)])
def test_statement_12_the_window_of_each_version_decides_when_a_lagging_follower_leaves(
    lab: Any, preset: str, window_ms: int
) -> None:
    it = lab(preset=preset, start_up_ms=0)
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 1, 100)
    it.run(10_000)
    it.hold(1, 3)
    it.run(9_400 + window_ms)
    assert it.state(key).isr == (1, 2, 3)
    it.run(10_000 + window_ms * 3 // 2 + 100)
    assert it.state(key).isr == (1, 2)
