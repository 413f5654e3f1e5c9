"""Faults tried, each in a copy of the checkout: does one of the tests that run its line fail?"""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from tests.mutants.faults import CHECKOUT
from tests.mutants.selection import PYTEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.mutants.faults import Fault
    from tests.mutants.selection import Selection

# A fault may make a loop endless: so long beyond what its tests took without it.
LONGEST_SECONDS: Final = 60.0
LONGEST_FACTOR: Final = 10.0
# The first failure decides; Hypothesis need not look for the smallest.
UNTIL_ONE_FAILS: Final = ("-x", "--hypothesis-profile=first-failure")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a test fails of a fault, and how many can."""

    fault: Fault
    is_seen: bool
    tests: int


def copy_of_checkout(folder: Path) -> Path:
    """Copy what git has of the checkout."""
    named = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, named.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, folder / name)
    return folder


def tried(fault: Fault, selection: Selection, copy: Path) -> Verdict:
    """Return whether a test fails of a fault, or does not end."""
    source = (copy / fault.module).read_text(encoding="utf-8")
    tests = selection.tests_for(fault, source)
    if not tests:
        return Verdict(fault, is_seen=False, tests=0)
    longest = LONGEST_SECONDS + LONGEST_FACTOR * sum(selection.seconds[test] for test in tests)
    (copy / fault.module).write_text(fault.code, encoding="utf-8")
    try:
        command = [*PYTEST, *UNTIL_ONE_FAILS, *tests]
        code = subprocess.run(command, cwd=copy, check=False, capture_output=True, timeout=longest).returncode
    except subprocess.TimeoutExpired:
        code = 1
    finally:
        (copy / fault.module).write_text(source, encoding="utf-8")
    return Verdict(fault, is_seen=code != 0, tests=len(tests))


def verdicts(faults: Iterable[Fault], selection: Selection, copies: Iterable[Path]) -> Iterator[Verdict]:
    """Try each fault, one at a time in each copy, and give the verdicts in the order of the faults."""
    free: SimpleQueue[Path] = SimpleQueue()
    workers = [free.put(copy) for copy in copies]

    def run(fault: Fault) -> Verdict:
        copy = free.get()
        try:
            return tried(fault, selection, copy)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(workers)) as pool:
        yield from pool.map(run, faults)
