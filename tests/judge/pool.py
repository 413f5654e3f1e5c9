"""Many plays at once, in processes: each result is written as it comes, and a command that was stopped goes on."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.judge.results import Result

CHECKOUT: Final = Path(__file__).parents[2]
_STEP: Final = 50


class Commit(NamedTuple):
    """What is judged."""

    name: str
    date: str
    is_changed: bool


def commit() -> Commit:
    """Read what is checked out; whether the rules were changed since."""
    name, date = _git("show", "--no-patch", "--format=%H %cs", "HEAD").split()
    return Commit(
        name, date, bool(_git("status", "--porcelain", "--", "streaming", "exporters", "dashboards", "tests/judge"))
    )


def _git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=CHECKOUT, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def all_played(
    path: Path, wanted: Sequence[int], judged: Callable[[int], Result], given: argparse.Namespace
) -> list[Result]:
    """Play what is missing, and append each result to the file as it comes; ``given``: how many at once, and resume."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = _read(path) if given.resume else {}
    if not given.resume:
        path.unlink(missing_ok=True)
    missing = [seed for seed in wanted if seed not in done]
    print(f"{len(missing)} plays to go, {len(wanted) - len(missing)} done; {path}", file=sys.stderr, flush=True)
    began = time.monotonic()
    context = multiprocessing.get_context("forkserver")
    pool = ProcessPoolExecutor(given.workers, mp_context=context)
    with closing_at_once(pool), path.open("a", encoding="utf-8") as file:
        running = [pool.submit(judged, seed) for seed in missing]
        for number, each in enumerate(as_completed(running), start=1):
            result = each.result()
            done[result["seed"]] = result
            file.write(json.dumps(result) + "\n")
            file.flush()
            if number % _STEP == 0 or number == len(missing):
                wrong = sum(bool("failed" in one or one.get("errors")) for one in done.values())
                rest = (time.monotonic() - began) / number * (len(missing) - number)
                print(
                    f"{len(done)} played, {wrong} with an error, {rest / 60:.0f} min to go", file=sys.stderr, flush=True
                )
    return [done[seed] for seed in wanted]


@contextmanager
def closing_at_once(pool: ProcessPoolExecutor) -> Iterator[None]:
    """End the processes of a pool, too, when this one is stopped: what they play is lost, what was played is not."""
    try:
        yield
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _read(path: Path) -> dict[int, Result]:
    """Read results; the last line may have been cut off."""
    results = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            result = json.loads(line)
        except ValueError:
            continue
        results[result["seed"]] = result
    return results
