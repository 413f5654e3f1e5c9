"""Memory that a process has freed goes back to the system.

By default glibc gives each thread an arena of its own and keeps what large batches have freed, and so does Arrow's own
allocator: after one full report a job would hold for ever what it needed for a second. Of Spark's Python workers
``conf/spark-defaults.conf`` says the same.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Final

import pyarrow as pa

# The parameters of mallopt(3), by the variables with which the user of a program may set them.
_PARAMETERS: Final = {"MALLOC_ARENA_MAX": (-8, 1), "MALLOC_TRIM_THRESHOLD_": (-1, 128 * 1024)}
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
