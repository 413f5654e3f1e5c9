"""Memory that a process has freed goes back to the system.

By default glibc gives each thread an arena of its own and keeps what large batches have freed, and so does Arrow's own
allocator: after one full report a job would hold for ever what it needed for a second. Of Spark's Python workers
``conf/spark-defaults.conf`` says the same.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import threading
import time
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

# The parameters of mallopt(3), by the variables with which the user of a program may set them.
_PARAMETERS: Final = {"MALLOC_ARENA_MAX": (-8, 1), "MALLOC_TRIM_THRESHOLD_": (-1, 128 * 1024)}
SECONDS_BETWEEN_TRIMS: Final = 60.0
_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"


def return_freed_memory() -> None:
    """Let this process return what it frees; before it starts threads. What the environment says otherwise wins."""
    if _POOL not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    with suppress(AttributeError, OSError):  # another libc than glibc
        mallopt = ctypes.CDLL(None).mallopt
        for variable, (parameter, value) in _PARAMETERS.items():
            if variable not in os.environ:
                mallopt(parameter, value)


class Heap:
    """The heap of this process, of which what was freed between pieces in use goes back to the system, too.

    The allocator itself returns only what lies at the end. Of a job with 10,000 partitions at rest a walk returned 31
    of 257 MB, in milliseconds.
    """

    def __init__(self) -> None:
        self._trimmed_at = time.monotonic()

    def trim_when_due(self) -> None:
        """Trim the heap once a minute; another libc than glibc cannot."""
        if time.monotonic() - self._trimmed_at > SECONDS_BETWEEN_TRIMS:
            self._trimmed_at = time.monotonic()
            with suppress(AttributeError, OSError):
                ctypes.CDLL(None).malloc_trim(0)


# Pauses of Python's garbage collector.
#
# Reference counts free what a batch leaves behind; the collector only looks for cycles. To find none it walks every
# object again and again, and the states of a large cluster are millions that live long.


SECONDS_BETWEEN_FULL_COLLECTIONS: Final = 3600.0
_NEVER: Final = 1 << 30


@contextmanager
def collected_after() -> Iterator[None]:
    """Let the garbage collector of this process wait for the end of a batch; also as a decorator."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def never_collected() -> Iterator[None]:
    """Create millions of long-lived objects that the garbage collector never scans, neither now nor later."""
    with collected_after():
        yield
        freeze()  # not after a failure: what it leaves behind is garbage


def freeze() -> None:
    """Exclude every object that there is from garbage collection until the process ends."""
    _unfreeze_at_exit()
    gc.freeze()


@cache
def _unfreeze_at_exit() -> None:
    atexit.register(gc.unfreeze)  # what is not freed at the end, libraries report on the terminal as leaked


def collect_seldom() -> None:
    """Exclude every object that there is, and let the collector walk all later ones once an hour only.

    For a process that replaces large states and has to respond in between: a walk over all objects of 100,000
    partitions stops every thread for 0.15 s. Young objects are still looked at as always, which finds most cycles.
    """
    freeze()
    youngest, middle, _ = gc.get_threshold()
    gc.set_threshold(youngest, middle, _NEVER)
    threading.Thread(target=_collect_hourly, name="full-collections", daemon=True).start()


def _collect_hourly() -> None:
    while True:
        time.sleep(SECONDS_BETWEEN_FULL_COLLECTIONS)
        gc.collect()
