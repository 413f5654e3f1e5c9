"""How long each test file took: written to ``build/times.json`` after every run, and told of a run of many files."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from tests.times import MEASURED, head, recorded

MANY_FILES = 20
SLOWEST = 10
LONGER = 1.5
NOTICEABLE_SECONDS = 5.0
"""Below that a file is not said to be slower than recorded: the clock of a loaded machine is not that exact."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times(), "isrwatch-times")


class Times:
    """Adds up set-up, call and tear-down of the tests of each file, whichever process ran them."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.failed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += report.duration
        self.failed += report.failed

    def pytest_sessionfinish(self) -> None:
        if self.seconds:
            MEASURED.parent.mkdir(exist_ok=True)
            text = json.dumps(
                {"recorded": head(), "failed": self.failed, "seconds": dict(sorted(self.seconds.items()))}
            )
            MEASURED.write_text(text, encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.seconds) >= MANY_FILES:
            terminalreporter.section("slowest files")
            for line in told(self.seconds, recorded()):
                terminalreporter.line(line)


def told(seconds: dict[str, float], entries: dict[str, float]) -> list[str]:
    """Say the sum, which files were the slowest, and which took much longer than recorded.

    >>> told({"tests/test_a.py": 12.0, "tests/test_b.py": 6.0}, {"tests/test_a.py": 11.0, "tests/test_b.py": 3.0})
    ['18 s in all, 14 s are recorded', '12.0 s tests/test_a.py', '6.0 s tests/test_b.py, 3.0 s are recorded']
    """
    lines = [
        f"{sum(seconds.values()):.0f} s in all, {sum(entries.get(name, 0.0) for name in seconds):.0f} s are recorded"
    ]
    for place, name in enumerate(sorted(seconds, key=lambda name: -seconds[name])):
        entry = entries.get(name, 0.0)
        is_longer = entry and seconds[name] > max(LONGER * entry, NOTICEABLE_SECONDS)
        if place < SLOWEST or is_longer:
            lines.append(f"{seconds[name]:.1f} s {name}{f', {entry:.1f} s are recorded' if is_longer else ''}")
    return lines
