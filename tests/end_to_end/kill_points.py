"""Runs ``isrwatch job`` and kills it with SIGKILL at an exact point of its N-th commit to the truth.

    python kill_points.py before|during|after N JOB-ARGUMENTS...

``during`` means: the commit has been handed to delta-rs, and the kill comes from another thread while it works.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import typer

from streaming.commands.job import job
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta import writer

POINT, NUMBER = sys.argv[1], int(sys.argv[2])
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
sys.argv = ["job", *sys.argv[3:]]
typer.run(job)
