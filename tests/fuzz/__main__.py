"""``python -m tests.fuzz``: damaged input, most of it with lengths and checksums that are right.

--cases N    so many, over all targets (1000000)
--seed S     which ones (it is printed; the same seed draws the same)
--target T   this one alone
--only N     this case alone, to see what happens

Whatever reads the input must refuse it, put it into quarantine, or make a value of it of which everything holds that
must hold of such values. The first case of each target that ends otherwise, or takes longer than ten seconds, is
printed with the command that repeats it, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.targets import QUARANTINED, REFUSED, VALUE, Configurations, Frames, Observations, Pages
from tests.fuzz.targets_of_kafka import Records, Responses, Watched

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

TARGETS: Final = (Observations, Frames, Records, Responses, Watched, Pages, Configurations)
INSIDE: Final = 0.6
SECONDS: Final = 10.0
_NAMES: Final = {target.name: target for target in TARGETS}


def failure_of(target: Target, seed: int, number: int, counts: Counter[str]) -> str:
    """Try one case; return what went wrong, with the command that repeats it; empty if nothing did."""
    dice = Random(f"{seed} {target.name} {number}")
    inside = dice.random() < INSIDE
    data = target.mutated(dice, inside=inside)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        counts[target.outcome(data)] += 1
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        command = f"python -m tests.fuzz --target '{target.name}' --seed {seed} --only {number}"
        return f"{traceback.format_exc(limit=-6)}{data[:300]!r}\nrepeat: {command}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    counts["inside"] += inside
    return ""


def tried(target: Target, seed: int, numbers: range) -> tuple[Counter[str], str]:
    """Try cases until one fails."""
    counts: Counter[str] = Counter()
    signal.signal(signal.SIGALRM, _too_long)
    for number in numbers:
        if failure := failure_of(target, seed, number, counts):
            return counts, failure
    return counts, ""


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"it takes longer than {SECONDS:g} s")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options.add_argument("--target", choices=sorted(_NAMES))
    options.add_argument("--only", type=int)
    given = options.parse_args()
    chosen = [_NAMES[given.target]] if given.target else TARGETS
    print(f"seed {given.seed}", flush=True)
    print(f"{'target':18}{'cases':>9}{'inside':>8}{REFUSED:>10}{QUARANTINED:>13}{VALUE:>10}{'s':>7}", flush=True)
    failures = [_print_one(kind(), given, sum(target.weight for target in chosen)) for kind in chosen]
    return int(any(failures))


def _print_one(target: Target, given: argparse.Namespace, weights: int) -> bool:
    """Try the cases of one target, and print how they ended; return whether one failed."""
    count = given.cases * target.weight // weights
    numbers = range(count) if given.only is None else range(given.only, given.only + 1)
    began = time.monotonic()
    counts, failure = tried(target, given.seed, numbers)
    cases, seconds = counts[REFUSED] + counts[QUARANTINED] + counts[VALUE], time.monotonic() - began
    share = f"{counts['inside'] / max(cases, 1):.0%}"
    ends = "".join(f"{counts[name]:>{width}}" for name, width in ((REFUSED, 10), (QUARANTINED, 13), (VALUE, 10)))
    print(f"{target.name:18}{cases:>9}{share:>8}{ends}{seconds:>7.0f}", flush=True)
    if failure:
        print(f"FAILS: {failure}", flush=True)
    return bool(failure)


if __name__ == "__main__":
    sys.exit(main())
