"""What a program costs: CPU seconds and memory of its process and of all below it, from ``/proc``."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def tree(root: int) -> list[int]:
    """Name a process and all that descend from it."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parents[int(folder.name)] = int(_fields(int(folder.name))[1])
    pids = [root]
    for pid in pids:
        pids += [child for child, parent in parents.items() if parent == pid]
    return pids


def cpu_seconds(root: int) -> Counter[str]:
    """Give the CPU seconds of a process and its descendants by kind, those included that have ended."""
    seconds: Counter[str] = Counter()
    for pid in tree(root):
        with suppress(FileNotFoundError, ProcessLookupError):
            seconds[_kind(pid, root)] += sum(map(int, _fields(pid)[11:15])) / TICKS
    return seconds


def memory(root: int) -> Counter[str]:
    """Give the bytes of memory by kind; pages that processes share are counted once (PSS)."""
    size: Counter[str] = Counter()
    for pid in tree(root):
        with suppress(FileNotFoundError, ProcessLookupError):
            size[_kind(pid, root)] += _kilobytes("Pss", Path(f"/proc/{pid}/smaps_rollup")) * 1024
    return size


def peak() -> int:
    """Give the most bytes that this program had in memory. ``ru_maxrss`` counts what its parent had when it began."""
    return _kilobytes("VmHWM", Path("/proc/self/status")) * 1024


def _kind(pid: int, root: int) -> str:
    if pid == root:
        return "driver"
    return "JVM" if "java" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0] else "Python workers"


def _fields(pid: int) -> list[str]:
    """Give the fields of ``stat`` behind the name, which may itself contain blanks."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _kilobytes(name: str, file: Path) -> int:
    match = re.search(rf"^{name}:\s+(\d+)", file.read_text(), re.MULTILINE)
    return int(match[1]) if match else 0
