"""Which test file runs when, and in which process of xdist: whole files, the longest first, those of Spark together.

Within a file the order stays what it is: random in ``make test``. Files that use the session of Spark run in one
process, because each process that runs one of them starts a session; so do those of the shared clusters of Kafka.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.times import ROOT, STARTS, recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

USES_SESSION = re.compile(r"^( *)def \w+\([^)]*\bspark: ", re.MULTILINE)
SESSION = "the session of Spark"
USES_CLUSTER = re.compile(r"^def \w+\([^)]*\bkafka_(?:4_3|4_4|secured|single): ", re.MULTILINE)
CLUSTER = "the shared clusters of Kafka"


class Together(LoadFileScheduling):
    """Gives a process a whole file at a time, and to one process all of Spark's session, or of shared clusters."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(self.config.rootpath / nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Together | None:
    return Together(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")
def mark_what_starts_something(items: list[pytest.Item]) -> None:
    """Give the tests of files that start a program or a server the marker of it."""
    starting = {path for path in {item.path for item in items} if STARTS.search(path.read_text(encoding="utf-8"))}
    for item in items:
        if item.path in starting:
            item.add_marker("process")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest first, so that no process is left with it while the others have nothing to do."""
    if hasattr(config, "workerinput"):
        seconds = {ROOT / name: entry for name, entry in recorded().items()}
        place = {path: number for number, path in enumerate(ordered({item.path for item in items}, seconds))}
        items.sort(key=lambda item: place[item.path])


def ordered(files: Iterable[Path], seconds: Mapping[Path, float]) -> list[Path]:
    """Order files by the recorded seconds of what runs together; a file without an entry comes first."""
    sums: defaultdict[str, float] = defaultdict(float)
    known = sorted(files)
    for path in known:
        sums[unit_of(path)] += seconds.get(path, math.inf)
    return sorted(known, key=lambda path: (-sums[unit_of(path)], unit_of(path), -seconds.get(path, math.inf)))


@cache
def unit_of(path: Path) -> str:
    """Return what a file runs together with: itself, or others that use the session of Spark or shared clusters."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return SESSION if USES_SESSION.search(text) else CLUSTER if USES_CLUSTER.search(text) else str(path)
