"""A test that did not run has proven nothing: with ISRWATCH_NO_SKIPS=1 or CI=1 a skip is a failure.

Also tells at the end what was run, by room and by marker, and closes with "N passed, N failed".
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

ROOM_DEPTH = 2  # tests/model/test_x.py belongs to tests/model
MARKERS = ("spark", "kafka", "prometheus", "process")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Tally(), "isrwatch-tally")
    if any(os.environ.get(name, "") not in {"", "0"} for name in ("ISRWATCH_NO_SKIPS", "CI")):
        config.pluginmanager.register(NoSkips(), "isrwatch-no-skips")


def fail_if_skipped(report: Any) -> None:
    """Turn a skip into a failure; an expected failure (xfail) did run, and stays."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\nA skipped test is a failure here: provide what it needs."


class NoSkips:
    """Lets no test, and no module, skip itself."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        fail_if_skipped(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        fail_if_skipped(report)
        return report


class Tally:
    """Counts outcomes by room and by marker."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.groups: dict[str, tuple[str, ...]] = {}
        self.broken_modules = 0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.broken_modules += report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            outcome = "failed as expected" if hasattr(report, "wasxfail") and report.skipped else report.outcome
            worst = "failed" if self.outcomes.get(report.nodeid) == "failed" else outcome
            self.outcomes[report.nodeid] = worst
            self.groups[report.nodeid] = groups_of(report)  # of the report: other processes collect, and run, the tests

    def counts(self) -> dict[str, Counter[str]]:
        """Count outcomes for each room and each marker."""
        table: dict[str, Counter[str]] = {}
        for nodeid, outcome in self.outcomes.items():
            for group in self.groups[nodeid]:
                table.setdefault(group, Counter())[outcome] += 1
        return table

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("what was run")
        for group, counted in sorted(self.counts().items(), key=lambda entry: (entry[0].startswith("marker"), entry)):
            terminalreporter.line(f"{group:<24} {sentence(counted)}")

    def pytest_unconfigure(self) -> None:
        if "PYTEST_XDIST_WORKER" in os.environ:
            return
        total = Counter(self.outcomes.values())
        total["failed"] += self.broken_modules
        print(sentence(total))


def groups_of(report: pytest.TestReport) -> tuple[str, ...]:
    """Return the room of a test, and its markers."""
    folders = Path(report.nodeid.partition("::")[0]).parent.parts
    return ("/".join(folders[:ROOM_DEPTH]), *(f"marker {name}" for name in MARKERS if name in report.keywords))


def sentence(counted: Counter[str]) -> str:
    """Say how many passed and failed, and whatever else happened.

    >>> sentence(Counter(passed=3))
    '3 passed, 0 failed'
    """
    rest = [f"{counted[outcome]} {outcome}" for outcome in ("skipped", "failed as expected") if counted[outcome]]
    return ", ".join([f"{counted['passed']} passed", f"{counted['failed']} failed", *rest])
