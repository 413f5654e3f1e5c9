"""``python -m tests.long``: what takes too long for ``make test``, in parts of an hour at most.

--part P   only this one; may be given several times
--seed N   draws from N (it is printed); else from the time
--resume   leaves out what has passed at this commit, and goes on with what was stopped
--write    replaces the rows of docs/quality.md; nothing of the checkout may be changed
--render   only writes the rows of docs/quality.md again, with new parts
--old      only names the parts whose commit is more than 30 days old, or that were not run

What a part prints is in build/long/PART.log, too. The exit code is 1 if one failed or was stopped.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from tests.long.page import FAILED, PAGE, PASSED, Row, read, render, write
from tests.long.parts import PARTS, Part

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "long"
LONGEST_SECONDS: Final = 3600
OLD_DAYS: Final = 30
STOPPED: Final = "stopped"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", action="append", choices=PARTS)
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options.add_argument("--resume", action="store_true")
    options.add_argument("--write", action="store_true")
    options.add_argument("--render", action="store_true")
    options.add_argument("--old", action="store_true")
    given = options.parse_args()
    if given.render:
        render()
        return 0
    if given.old:
        if lines := old(dt.datetime.now(dt.UTC).date()):
            print(f"Before a release, these long tests have no new result in {PAGE.relative_to(ROOT)}:")
            print("\n".join(f"  {line}" for line in lines))
        return 0
    if given.write and changed():
        sys.exit(f"what is checked out is changed, so nothing could be written:\n{changed()}")
    results = {}
    for number, part in enumerate(given.part or [name for name, part in PARTS.items() if part.in_all]):
        results[part] = ran(part, given.seed + 1000 * number, resume=given.resume, writes=given.write)
        print(f"{part}: {results[part]}", flush=True)
    print("\n".join(f"{part:14}{result}" for part, result in results.items()))
    return int(any(not result.startswith(PASSED) for result in results.values()))


def ran(name: str, seed: int, *, resume: bool, writes: bool) -> str:
    """Run a part, or the rest of it, and return how it ended."""
    part, state_file = PARTS[name], FOLDER / f"{name}.json"
    FOLDER.mkdir(parents=True, exist_ok=True)
    state = json.loads(state_file.read_text(encoding="utf-8")) if resume and state_file.exists() else {}
    commit = f"{git('rev-parse', '--short=12', 'HEAD')}{'-changed' * bool(changed())}"
    if state.get("commit") != commit:
        state = {"commit": commit, "seed": seed, "seconds": 0.0, "result": ""}
        resume = False
    if not state["result"].startswith(PASSED):
        print(f"--- {name}: {part.shows}; seed {state['seed']}", flush=True)
        began = time.monotonic()
        state["result"] = STOPPED
        state_file.write_text(json.dumps(state), encoding="utf-8")
        command = part.arguments(state["seed"], resume=resume)
        try:
            state["result"] = ended(command, part, FOLDER / f"{name}.log")
        finally:
            state["seconds"] = time.monotonic() - began + state["seconds"] * (resume and part.resumes)
            state_file.write_text(json.dumps(state), encoding="utf-8")
    is_same = commit == git("rev-parse", "--short=12", "HEAD") and not changed()
    if writes and is_same and state["result"] != STOPPED:
        date = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
        seeded = str(state["seed"]) if "{seed}" in part.command else ""
        write(name, Row(state["result"], commit, date, f"{state['seconds'] / 60:.0f}", seeded))
    return str(state["result"])


def ended(command: list[str], part: Part, log: Path) -> str:
    """Run a command, of a part of the whole for an hour at most, show what it prints, and return how it ended."""
    here = {**os.environ, "ISRWATCH_EXAMPLES": part.examples, "ISRWATCH_NO_SKIPS": "1", "PYTHONUNBUFFERED": "1"}
    is_late = threading.Event()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else ignored where a shell runs it in the background
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
        timer = threading.Timer(LONGEST_SECONDS, lambda: (is_late.set(), os.killpg(process.pid, signal.SIGINT)))
        if part.in_all:
            timer.start()
        try:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                file.write(line)
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGINT)
            process.wait()
            raise
        finally:
            timer.cancel()
    if is_late.is_set():
        return STOPPED
    said = part.result(log.read_text(encoding="utf-8"))
    return f"{FAILED if code else PASSED}{f': {said}' if said else ''}"


def changed() -> str:
    """Return what of the checkout is not committed, but for the page itself."""
    lines = git("status", "--porcelain", "--untracked-files=no").splitlines()
    return "\n".join(line for line in lines if not line.endswith(str(PAGE.relative_to(ROOT))))


def git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.rstrip()


def old(today: dt.date) -> list[str]:
    """Say which parts were not run, or at a commit that is old."""
    rows, lines = read(), []
    for name in PARTS:
        row = rows.get(name, Row())
        date = git("show", "--no-patch", "--format=%cs", row.commit) if row.commit else ""
        if not date:
            lines.append(f"{name}: {row.result}")
        elif (days := (today - dt.date.fromisoformat(date)).days) > OLD_DAYS:
            lines.append(f"{name}: its commit {row.commit} is {days} days old")
    return lines


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # ends the part that runs, too
    sys.exit(main())
