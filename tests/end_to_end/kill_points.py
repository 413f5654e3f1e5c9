"""Runs ``isrwatch job`` and kills it with SIGKILL at an exact point of its N-th commit to the truth.

    python kill_points.py before|during|after N job JOB-ARGUMENTS...
    python kill_points.py before|during|after N batches BUS TABLES

``during`` means: the commit has been handed to delta-rs, and the kill comes from another thread while it works.
``batches`` are those of the job, without Spark around them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import typer

from streaming.commands.job import job
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.log import writer
from tests.plugins.batches import Batches

POINT, NUMBER, WHAT = sys.argv[1], int(sys.argv[2]), sys.argv[3]
SECONDS_INTO_THE_COMMIT = 0.004


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_soon() -> None:
    time.sleep(SECONDS_INTO_THE_COMMIT)
    die()


write = writer.write_deltalake
commits = 0


def write_and_die(*arguments: Any, **options: Any) -> None:
    global commits  # noqa: PLW0603 - a script of one purpose
    commits += PARTITION_CHANGES.name in arguments[0].table_uri
    if commits < NUMBER or PARTITION_CHANGES.name not in arguments[0].table_uri:
        write(*arguments, **options)
        return
    if POINT == "before":
        die()
    if POINT == "during":
        threading.Thread(target=die_soon).start()
    write(*arguments, **options)
    die()


writer.write_deltalake = write_and_die  # type: ignore[assignment]
if WHAT == "batches":
    Batches(bus=Path(sys.argv[4]), tables=Path(sys.argv[5])).run()
else:
    sys.argv = sys.argv[3:]
    typer.run(job)
