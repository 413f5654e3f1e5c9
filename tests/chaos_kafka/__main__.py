"""``python -m tests.chaos_kafka``: random faults of a real cluster, and whether the tables have what its log has.

--faults N     so many in each run (30)
--seed S       the first run's seed (it is printed; the same seed draws the same faults)
--runs N       so many runs, with seeds S, S + 1, ..., each on a cluster of its own (1)
--harms A,B    draw from these only
--without-spark  fold the buses at the end instead of running two Spark jobs
--small        three brokers and a controller instead of five and three
--version V    of Kafka: 4.4, 4.3, 3.9 or 3.6, whose controllers are read at configured addresses (4.3)
--keep FOLDER  keep the tables and Kafka's log of each run there, for python -m tests.pages.night
--minutes M    begin no run later than this
--resume       leave out the seeds of which such a run was equal already; the first seed of the results is the default

Each run is a line of the results: build/chaos-kafka/COMMIT.txt, with "-changed" where files of the commit are. Of a run
that is not equal everything is kept: the logs of the controllers, both buses, all tables, the output of every program.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deploy.sandbox.plan import DEFAULT, ONLY_ZOOKEEPER, VERSIONS
from tests.chaos_kafka.harms import HARMS
from tests.chaos_kafka.run import Verdict, played
from tests.chaos_kafka.schedule import FULL, SMALL, drawn

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"(?P<verdict>\w+) seed (?P<seed>\d+), (?P<what>.+) \(\d+ s\): ")


def results_file() -> Path:
    """Name the file of the results by the commit that is played."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, check=False)
    folder = ROOT / "build" / "chaos-kafka"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{commit.stdout.strip() or 'unknown'}{'-changed' if changed.stdout else ''}.txt"


def verdicts_in(results: Path, what: str) -> dict[int, str]:
    """Read the seeds of runs of a kind, each with its last verdict."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    found = [match for line in lines if (match := LINE.match(line)) and match["what"] == what]
    return {int(match["seed"]): match["verdict"] for match in found}


def say(line: str) -> None:
    print(line, flush=True)


def options_given() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--faults", type=int, default=30)
    options.add_argument("--seed", type=int)
    options.add_argument("--runs", type=int, default=1)
    options.add_argument("--harms", default=",".join(HARMS))
    options.add_argument("--without-spark", action="store_true")
    options.add_argument("--small", action="store_true")
    versions = [each for each in VERSIONS if each not in ONLY_ZOOKEEPER]
    options.add_argument("--version", choices=versions, default=DEFAULT)
    options.add_argument("--keep", type=Path)
    options.add_argument("--minutes", type=float, default=float("inf"))
    options.add_argument("--resume", action="store_true")
    given = options.parse_args()
    if unknown := set(given.harms.split(",")) - set(HARMS):
        options.error(f"there is no {', '.join(sorted(unknown))} among the harms: {', '.join(HARMS)}")
    return given


def main() -> int:
    given = options_given()
    harms = tuple(given.harms.split(","))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # through every finally: nothing stays behind
    results, failed = results_file(), 0
    what = f"{given.faults} faults{' of a small cluster' * given.small}{' without Spark' * given.without_spark}"
    what += f" of Kafka {given.version}" if given.version != DEFAULT else ""
    what += f" of {given.harms}" if set(harms) != set(HARMS) else ""
    done = verdicts_in(results, what) if given.resume else {}
    first = given.seed if given.seed is not None else min(done, default=time.time_ns() % 1_000_000)
    began, played_runs = time.monotonic(), 0
    for seed in range(first, first + given.runs):
        if done.get(seed) == Verdict.EQUAL:
            continue
        if time.monotonic() - began > 60 * given.minutes:
            break
        played_runs += 1
        shape = (SMALL if given.small else FULL)._replace(version=given.version)
        schedule = drawn(seed, given.faults, harms, shape)
        say(f"seed {seed}: {what}")
        start, directory = time.monotonic(), Path(tempfile.mkdtemp(prefix=f"chaos-kafka-{seed}-"))
        keep = given.keep and given.keep / f"seed-{seed}"
        verdict, text = played(schedule, directory, spark=not given.without_spark, say=say, keep=keep)
        line = f"{verdict} seed {seed}, {what} ({time.monotonic() - start:.0f} s)"
        say(f"{line}: {text}")
        if verdict is Verdict.EQUAL:
            shutil.rmtree(directory)
            line += f": {text}"
        else:
            say(
                f"everything is kept in {directory}; repeat: python -m tests.chaos_kafka {' '.join(sys.argv[1:])} "
                f"--seed {seed} --runs 1"
            )
            line += f": kept in {directory}"
            failed += 1
        with results.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    say(f"{played_runs} runs, {failed} failed; results: {results}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
