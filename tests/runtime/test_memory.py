from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL = """
import pyarrow as pa
from streaming.runtime.memory import return_freed_memory
return_freed_memory()
print(pa.default_memory_pool().backend_name)
"""
ARENAS = """
import ctypes
from threading import Barrier, Thread
from streaming.runtime.memory import return_freed_memory
return_freed_memory()
together = Barrier(8)
def work():
    rows = [bytes(20_000) for _ in range(100)]
    together.wait()
threads = [Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info(0, stream := ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(stream)
"""

HOLES = """
import os
from pathlib import Path
from streaming.runtime import memory
memory.return_freed_memory()
memory.SECONDS_BETWEEN_TRIMS = -1
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
heap = memory.Heap()
kept = [bytes(3_000) for _ in range(40_000)][::100]
before = resident()
heap.trim_when_due()
print(before - resident())
"""


def printed(program: str, chosen: dict[str, str]) -> str:
    """Give what a program prints, in an environment with what its user chose."""
    environment = {**os.environ, **chosen}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    ).stdout


@pytest.mark.parametrize(("chosen", "pool"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")])
def test_arrow_takes_its_memory_from_the_system_unless_the_user_chose_otherwise(
    chosen: dict[str, str], pool: str
) -> None:
    assert printed(POOL, chosen).strip() == pool


@pytest.mark.parametrize(("chosen", "arenas"), [({}, {1, 2}), ({"MALLOC_ARENA_MAX": "3"}, {3})])
def test_threads_share_one_arena_unless_the_user_chose_otherwise(chosen: dict[str, str], arenas: set[int]) -> None:
    """Beside it there may be one of a thread that started while pyarrow was imported."""
    assert printed(ARENAS, chosen).count("<heap nr=") in arenas


@pytest.mark.spark
def test_a_python_worker_of_spark_is_told_the_same(spark: SparkSession) -> None:
    names = ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_")

    def seen(_: object) -> list[str | None]:
        return [os.environ.get(name) for name in names]

    assert spark.sparkContext.parallelize([0], 1).map(seen).collect() == [["system", "1", "131072"]]


def test_what_was_freed_between_pieces_in_use_goes_back() -> None:
    assert int(printed(HOLES, {})) > 80
