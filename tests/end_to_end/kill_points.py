"""Runs ``isrwatch job`` and kills it with SIGKILL at an exact point of its N-th commit to the truth.

    python kill_points.py before|file|draft|after N job JOB-ARGUMENTS...
    python kill_points.py before|file|draft|after N batches BUS TABLES

``before`` is before the data file, ``file`` behind it, ``draft`` while the log entry has no name yet, ``after`` is
behind it. ``batches`` are those of the job, without Spark around them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from streaming.commands.job import job
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.log import commit, writer
from tests.plugins.batches import Batches

POINT, NUMBER, WHAT = sys.argv[1], int(sys.argv[2]), sys.argv[3]
CALL = {"before": (commit, "put"), "file": (writer, "create"), "draft": (os, "link"), "after": (writer, "create")}
commits = 0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def and_die(call: Callable[..., Any]) -> Callable[..., Any]:
    """Make the N-th call of a step the last one."""

    def called(*arguments: Any) -> Any:
        global commits  # noqa: PLW0603 - a script of one purpose
        commits += PARTITION_CHANGES.name in str(arguments[0])
        if commits < NUMBER or PARTITION_CHANGES.name not in str(arguments[0]):
            return call(*arguments)
        if POINT == "after":
            call(*arguments)
        die()
        raise AssertionError("killed")

    return called


where, step = CALL[POINT]
setattr(where, step, and_die(getattr(where, step)))
if WHAT == "batches":
    Batches(bus=Path(sys.argv[4]), tables=Path(sys.argv[5])).run()
else:
    sys.argv = sys.argv[3:]
    typer.run(job)
