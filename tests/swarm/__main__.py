"""``python -m tests.swarm``: checks random runs of the model against the invariants.

--seconds S   so many seconds of real time (60)
--seed N      only this run
--preset P    the version of Kafka (kraft-4.x)

A run that violates an invariant is shrunk to as few acts as still do, and printed; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import count
from typing import Final

from streaming.model.constants import NEWEST, PRESETS
from tests.swarm.swarm import NAMES, run_swarm

BUDGET_SECONDS: Final = 60.0


def main(words: Sequence[str] | None = None) -> int:
    """Run a swarm, and print what it found."""
    options = argparse.ArgumentParser(
        prog="python -m tests.swarm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seconds", type=float, default=BUDGET_SECONDS)
    options.add_argument("--seed", type=int)
    options.add_argument("--preset", choices=PRESETS, default=NEWEST)
    given = options.parse_args(words)
    seeds = count(1) if given.seed is None else (given.seed,)
    report = run_swarm(seeds, constants=PRESETS[given.preset], budget_s=given.seconds)
    for failure in report.failures:
        print(f"{failure} --preset {given.preset}")
    simulated = f"{report.simulated_ms / 1_000:.0f} simulated seconds, {report.acts} faults"
    held = "no violation" if not report.failures else "violated"
    print(f"{report.runs} runs, {simulated}, {len(NAMES)} invariants after every step: {held}")
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
