"""The clock of a job under ``make chaos``: the machine's, set ahead or back by what a file says. Of the tests only.

Python imports this module by its name before anything else, in the driver and in Spark's Python workers. Spark's Java
process and delta-rs keep the machine's clock, so a jump is one between them and our own code as well.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_FILE = os.environ.get("CHAOS_CLOCK", "")
_REAL = time.time_ns


def _ahead() -> int:
    with suppress(OSError, ValueError):
        return round(float(Path(_FILE).read_text(encoding="ascii")) * 1_000_000_000)
    return 0


def _time_ns() -> int:
    return _REAL() + _ahead()


def _time() -> float:
    return _time_ns() / 1e9


if _FILE:
    time.time_ns = _time_ns
    time.time = _time
