"""``python -m tests.mutants``: small faults put into the rules at random, to see whether a test fails of each.

--sample N   so many places, drawn from all of them (300)
--seed S     which ones (it is printed; the same seed draws the same)
--workers N  so many at once, each in a copy of the checkout (2)

All tests run once to learn which lines each of them runs; then, for each fault, those that run its line. A fault that
no test sees is printed with its difference. Below 85 % of seen ones the exit code is 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.mutants.faults import RULES, difference, drawn_faults
from tests.mutants.selection import selection_of
from tests.mutants.trial import copy_of_checkout, verdicts

ENOUGH: Final = 0.85


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sample", type=int, default=300)
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options.add_argument("--workers", type=int, default=2)
    given = options.parse_args()
    print(f"seed {given.seed}", flush=True)
    faults = list(drawn_faults(given.sample, random.Random(given.seed)))
    seen = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [copy_of_checkout(Path(folder) / str(number)) for number in range(given.workers)]
        selection = selection_of(copies[0], (room for rooms in RULES.values() for room in rooms), Path(folder))
        print(f"{len(selection.seconds)} tests, {sum(selection.seconds.values()):.0f} s", flush=True)
        for number, verdict in enumerate(verdicts(faults, selection, copies), start=1):
            seen += verdict.is_seen
            outcome = "seen  " if verdict.is_seen else "UNSEEN"
            print(f"{number:4} {outcome} {verdict.fault.name} ({verdict.tests} tests)", flush=True)
            if not verdict.is_seen:
                print(difference(verdict.fault), flush=True)
    print(f"{seen} of {len(faults)} seen ({seen / len(faults):.0%}), seed {given.seed}")
    return seen / len(faults) < ENOUGH


sys.exit(main())
