"""``python -m tests.chaos``: random runs of the real job under random harm.

--seed S     the first run's seed (it is printed; the same seed is the same schedule)
--runs N     so many runs, with seeds S, S + 1, ...
--harms A,B  these harms, in this order, in every run
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.harms import HARMS
from tests.chaos.run import played
from tests.chaos.schedule import drawn


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.chaos")
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options.add_argument("--runs", type=int, default=1)
    options.add_argument("--harms", default="", help=", ".join(HARMS))
    given = options.parse_args()
    if os.geteuid():  # small disks need a mount: be root in a name space of our own
        again = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", "tests.chaos", *sys.argv[1:]]
        return subprocess.run(again, check=False).returncode
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # through every finally: nothing stays behind
    failed, began = 0, time.monotonic()
    for seed in range(given.seed, given.seed + given.runs):
        schedule = drawn(seed, tuple(name for name in given.harms.split(",") if name))
        start = time.monotonic()
        result = played(schedule, Path(tempfile.mkdtemp(prefix="chaos-")))
        harms = ", ".join(act.harm for act in schedule.acts)
        verdict, seconds = "DIFFERS" if result else "equal", time.monotonic() - start
        print(f"{verdict} seed {seed} {schedule.scenario}: {harms} ({seconds:.0f} s)\n{result}".rstrip(), flush=True)
        failed += bool(result)
    print(f"{given.runs} runs, {failed} failed, {time.monotonic() - began:.0f} s")
    return bool(failed)


sys.exit(main())
