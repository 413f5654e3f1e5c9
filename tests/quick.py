"""``python -m tests.quick``: the static checks, and beside them the tests that start no service and do not wait.

Which ones follows from the recorded seconds (``tests/times.py``). Options are those of pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.times import ROOT, every_file, functions_in, quick_files


class Failed:
    """Collects the tests that failed."""

    def __init__(self) -> None:
        self.tests: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests[report.nodeid] = None


def main() -> int:
    checks = subprocess.Popen(
        ["make", "--no-print-directory", "check"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    os.environ["ISRWATCH_EXAMPLES"] = "quick"
    os.environ["ISRWATCH_NO_SKIPS"] = "1"
    files, failed = quick_files(), Failed()
    options = ["--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder", "--durations=0", "--durations-min=2"]
    code = pytest.main(["-q", *options, *sys.argv[1:], *files], plugins=[failed])
    said, _ = checks.communicate()
    print(said, end="")
    every = {name: functions_in(path.read_text(encoding="utf-8")) for name, path in every_file().items()}
    share = sum(every[name] for name in files) / sum(every.values())
    print(f"{share:.0%} of all test functions are in these files; make test runs the others, too")
    if checks.returncode:
        print("a static check failed; alone: make check")
    if failed.tests:
        python = Path(sys.executable)
        place = python.relative_to(ROOT) if python.is_relative_to(ROOT) else python
        print(f"the first that failed, alone: {place} -m pytest '{next(iter(failed.tests))}'")
    return int(code) or checks.returncode


if __name__ == "__main__":
    sys.exit(main())
