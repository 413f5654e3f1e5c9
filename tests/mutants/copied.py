"""Faults outside of functions, tried in a copy of the checkout: what an import runs must be imported."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.faults import CHECKOUT, Fault, Verdict
from tests.mutants.selection import PYTEST, UNTIL_ONE_FAILS, Selection


def copy_of_checkout(folder: Path) -> Path:
    """Copy what git has of the checkout."""
    named = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, named.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, folder / name)
    return folder


def tried_at_once(faults: Iterable[Fault], selection: Selection, copies: Sequence[Path]) -> Iterator[Verdict]:
    """Try faults in several copies of the checkout, each in one of them at a time; give what is done first."""
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def try_one(fault: Fault) -> Verdict:
        copy = free.get()
        try:
            return tried(fault, selection, copy)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        for done in as_completed([pool.submit(try_one, fault) for fault in faults]):
            yield done.result()


def tried(fault: Fault, selection: Selection, copy: Path) -> Verdict:
    """Return whether a test fails of a fault, or does not end."""
    source = (copy / fault.module).read_text(encoding="utf-8")
    tests = selection.tests_for(fault, source)
    if not tests:
        return Verdict(fault, "", 0)
    (copy / fault.module).write_text(fault.code, encoding="utf-8")
    try:
        command, longest = [*PYTEST, *UNTIL_ONE_FAILS, *tests], selection.longest(tests)
        code = subprocess.run(command, cwd=copy, check=False, capture_output=True, timeout=longest).returncode
    except subprocess.TimeoutExpired:
        code = 1
    finally:
        (copy / fault.module).write_text(source, encoding="utf-8")
    return Verdict(fault, "a test" if code else "", len(tests))
