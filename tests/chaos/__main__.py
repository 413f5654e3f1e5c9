"""``python -m tests.chaos``: random runs of the real job under random harm.

--seed S     the first run's seed (it is printed; the same seed is the same schedule)
--runs N     so many runs, with seeds S, S + 1, ...
--harms A,B  these harms, in this order, in every run
--standalone on a Spark cluster with a bus of Kafka and tables in a store: executors, workers and drivers are killed,
             and standbys take over (tests/chaos/standalone)
--resume     leave out the seeds that are in the results already, of which the first one is the default seed

Each run is a line of the results: build/chaos/COMMIT.txt, with "-changed" where files of the commit are.
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
from tests.chaos.schedule import Schedule, drawn
from tests.chaos.standalone import run
from tests.chaos.standalone.machines import StandaloneMachines
from tests.chaos.standalone.run import StandaloneSchedule

ROOT = Path(__file__).parents[2]
EQUAL, DIFFERS = "equal", "DIFFERS"


def results_file(form: str) -> Path:
    """Name the file of the results by the commit that is played, and by the form of the installation."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, check=False)
    name = f"{commit.stdout.strip() or 'unknown'}{'-changed' if changed.stdout else ''}{form}.txt"
    folder = ROOT / "build" / "chaos"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def seeds_in(results: Path) -> dict[int, str]:
    """Read the seeds that were played, each with its last verdict."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return {int(words[2]): words[0] for words in map(str.split, lines)}


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.chaos")
    options.add_argument("--seed", type=int)
    options.add_argument("--resume", action="store_true")
    options.add_argument("--runs", type=int, default=1)
    options.add_argument("--harms", default="", help=", ".join(HARMS))
    options.add_argument("--standalone", action="store_true")
    given = options.parse_args()
    if os.geteuid() and not given.standalone:  # small disks need a mount: be root in a name space of our own
        again = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", "tests.chaos", *sys.argv[1:]]
        return subprocess.run(again, check=False).returncode
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # through every finally: nothing stays behind
    results, failed, began = results_file("-standalone" if given.standalone else ""), 0, time.monotonic()
    done = seeds_in(results) if given.resume else {}
    first = given.seed if given.seed is not None else min(done, default=time.time_ns() % 1_000_000)
    seeds = range(first, first + given.runs)
    machines = StandaloneMachines(Path(tempfile.mkdtemp(prefix="chaos-machines-")))
    try:
        for number, seed in enumerate(seeds, start=1):
            if done.get(seed) == EQUAL:
                continue
            harms = tuple(name for name in given.harms.split(",") if name)
            line, result = ran(seed, harms, machines if given.standalone else None)
            print(f"{number} of {given.runs}: {line}\n{result}".rstrip(), flush=True)
            with results.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
            failed += bool(result)
    finally:
        machines.close()
    print(f"{given.runs} runs, {failed} failed, {time.monotonic() - began:.0f} s; results: {results}")
    return bool(failed)


def ran(seed: int, harms: tuple[str, ...], machines: StandaloneMachines | None) -> tuple[str, str]:
    """Play one run; return its line of the results, and what differs."""
    start, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="chaos-"))
    schedule: Schedule | StandaloneSchedule
    if machines is None:
        schedule = drawn(seed, harms)
        result = played(schedule, folder)
    else:
        schedule = run.drawn(seed, harms)
        result = run.played(schedule, folder, machines)
    acts = ", ".join(act.harm for act in schedule.acts)
    seconds = time.monotonic() - start
    return f"{DIFFERS if result else EQUAL} seed {seed} {schedule.scenario}: {acts} ({seconds:.0f} s)", result


sys.exit(main())
