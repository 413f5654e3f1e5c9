"""``python -m tests.long.flaky``: files that start a program or wait for time, ten times beside two busy processes.

--rounds N   so many times (10)
--resume     leaves out the rounds that have passed at this commit

FILE ...     only these. Each round is a line of build/flaky/COMMIT.txt. A test that fails in one of them is flaky.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.long.parts import PYTEST
from tests.times import every_file, head, starts, waits

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
BUSY_PROCESSES: Final = 2
# Ends by itself when the process that started it is gone.
BUSY: Final = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10_000_000))"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", nargs="*")
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--resume", action="store_true")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # through every finally: nothing stays busy
    files = given.files or flaky_files()
    results = ROOT / "build" / "flaky" / f"{head()['commit']}.txt"
    results.parent.mkdir(parents=True, exist_ok=True)
    if not given.resume:
        results.unlink(missing_ok=True)
    done = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    failed = set()
    with two_busy_processes():
        for number in range(1, given.rounds + 1):
            if f"round {number}: passed" not in done:
                tests = failing(files)
                failed |= tests
                said = f"FAILED {' '.join(sorted(tests))}" if tests else "passed"
                print(f"round {number}: {said}", flush=True)
                with results.open("a", encoding="utf-8") as file:
                    file.write(f"round {number}: {said}\n")
    for test in sorted(failed):
        print(f"flaky: {test}")
    print(f"{given.rounds} rounds, {len(failed)} tests failed in one of them")
    return bool(failed)


def flaky_files() -> list[str]:
    """Name the test files whose outcome may depend on what else the machine does."""
    texts = {name: path.read_text(encoding="utf-8") for name, path in every_file().items()}
    return [name for name, text in texts.items() if starts(text) or waits(text)]


def failing(files: list[str]) -> set[str]:
    """Run the files once, and return the tests that failed."""
    command = [sys.executable, "-m", *PYTEST.split(), "-q", "--random-order", *files]
    here = {**os.environ, "ISRWATCH_NO_SKIPS": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=here, stdout=subprocess.PIPE, text=True, check=False)
    print(ran.stdout, flush=True)
    failed = set(re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE))
    return failed or ({f"the run ended with {ran.returncode}"} if ran.returncode else set())


@contextmanager
def two_busy_processes() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(BUSY_PROCESSES)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
