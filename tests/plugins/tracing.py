"""Which lines run: ``pytest -p tests.plugins.tracing --traced`` (``make coverage``) traces every process of the tests.

Tracing makes a fold three times as slow and the model four times, so ``make test`` traces nothing.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from coverage import Coverage, CoverageData

if TYPE_CHECKING:
    from collections.abc import Generator

TESTS: Final = Path(__file__).parents[1]
SETTINGS: Final = TESTS.parent / "pyproject.toml"
COVERING: Final = ("changes", "commands", "contracts", "delta", "exporters", "jobs")
"""Folders of tests by which coverage is measured: those of the covered packages, and of what runs them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tracing")
    group.addoption("--traced", action="store_true", help="trace what runs, and report it")
    group.addoption("--traced-by", default=str(SETTINGS), metavar="FILE", help="the settings of coverage")
    group.addoption("--traced-contexts", action="store_true", help="tell apart which test ran a line; no report")


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before the product is imported."""
    given = early_config.known_args_namespace
    if given.traced:
        early_config.pluginmanager.register(Tracing(given.traced_by, by_test=given.traced_contexts))


def pytest_configure(config: pytest.Config) -> None:
    """Run the folders that count if the command names none."""
    if config.option.traced and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args[:] = [str(TESTS / room) for room in COVERING]


class Tracing:
    """Traces one process; the one that the user started tells what all of them ran."""

    def __init__(self, settings: str, *, by_test: bool) -> None:
        self._settings, self._by_test = settings, by_test
        self._said = ""
        self._coverage = Coverage(config_file=settings, data_suffix=True)
        self._coverage.start()

    def pytest_configure(self, config: pytest.Config) -> None:
        """Delete what an earlier run has left, before other processes are started."""
        if not hasattr(config, "workerinput"):
            data = Path(self._coverage.config.data_file)
            for left in (data, *data.parent.glob(f"{data.name}.*")):
                left.unlink(missing_ok=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        self._switch(item, "setup")
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        self._switch(item, "run")
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        self._switch(item, "teardown")
        return (yield)

    def _switch(self, item: pytest.Item, phase: str) -> None:
        if self._by_test:
            self._coverage.switch_context(f"{item.nodeid}|{phase}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write what ran; after the other processes, put it together, and fail below the limit."""
        self._coverage.stop()
        self._coverage.save()
        if hasattr(session.config, "workerinput"):
            return
        combined = Coverage(config_file=self._settings)
        combined.combine()
        combined.save()
        if not self._by_test:
            total, self._said = reported(combined, session.config.rootpath)
            if total < (limit := combined.get_option("report:fail_under")):
                self._said += f"{total:.1f} % of the product is covered, and {limit} % must be\n"
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._said:
            terminalreporter.section("what of the product ran")
            terminalreporter.write(self._said)


def reported(combined: Coverage, root: Path) -> tuple[float, str]:
    """Return the percentage of all that is measured, and a text with it, each room and each file that lacks some."""
    text = io.StringIO()
    total = combined.report(file=text)
    for room in rooms_of(combined.get_data(), root):
        share = combined.report(include=[str(root / room / "*")], file=io.StringIO())
        text.write(f"{room:<24} {share:5.1f} %\n")
    return total, text.getvalue()


def rooms_of(data: CoverageData, root: Path) -> list[str]:
    """Name the folders of the measured files: streaming/changes, exporters/web."""
    files = (Path(file).relative_to(root) for file in data.measured_files())
    return sorted({"/".join(file.parts[:2]) for file in files if len(file.parts) > 2})
