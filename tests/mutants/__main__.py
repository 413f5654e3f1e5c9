"""``python -m tests.mutants``: small faults put into the rules at random, to see whether a test fails of each.

--sample N   so many places, drawn from all of them (300)
--seed S     which ones (it is printed; the same seed draws the same)
--workers N  so many at once (2)

All tests run once, which shows the lines that each of them runs; then, for each fault, those that run its line. A fault
that no test sees is printed with its difference. Below 85 % of seen ones the exit code is 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest

from tests.mutants.copied import copy_of_checkout, tried_at_once
from tests.mutants.faults import RULES, Verdict, difference, drawn_faults
from tests.mutants.forked import ForkedTrials
from tests.mutants.selection import NO_SERVICES, UNTIL_ONE_FAILS, selection_of

ENOUGH: Final = 0.85
ROOMS: Final = sorted({room for rooms in RULES.values() for room in rooms})


def report(verdict: Verdict) -> None:
    """Print a verdict, and of a fault that was not seen what it changes."""
    seen_by = f"seen by {verdict.seen_by}" if verdict.seen_by else f"UNSEEN by {verdict.tests} tests"
    print(f"{verdict.fault.name}: {seen_by}", flush=True)
    if not verdict.seen_by:
        print(difference(verdict.fault), flush=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sample", type=int, default=300)
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options.add_argument("--workers", type=int, default=2)
    given = options.parse_args()
    print(f"seed {given.seed}", flush=True)
    verdicts: list[Verdict] = []

    def reported(verdict: Verdict) -> None:
        verdicts.append(verdict)
        report(verdict)

    faults = list(drawn_faults(given.sample, random.Random(given.seed)))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = copy_of_checkout(Path(folder) / "checkout")
        selection = selection_of(copy, RULES, ROOMS, Path(folder), given.workers)
        print(f"{len(selection.seconds)} tests, {sum(selection.seconds.values()):.0f} s", flush=True)
        forked = ForkedTrials(faults, selection, given.workers, reported)
        pytest.main(["-q", "-p", "no:cacheprovider", *UNTIL_ONE_FAILS, *NO_SERVICES, *ROOMS], plugins=[forked])
        more = (copy_of_checkout(Path(folder) / f"checkout-{number}") for number in range(1, given.workers))
        for verdict in tried_at_once(forked.imported, selection, [copy, *more]):
            reported(verdict)
    seen = sum(bool(verdict.seen_by) for verdict in verdicts)
    print(f"{seen} of {len(faults)} seen ({seen / len(faults):.0%}), seed {given.seed}")
    for test in sorted(forked.unsteady):
        print(f"fails without any fault, too: {test}")
    return len(verdicts) < len(faults) or bool(forked.unsteady) or seen / len(faults) < ENOUGH


sys.exit(main())
