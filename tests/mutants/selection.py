"""Which tests can notice a fault: those that run its line, found by running all of them once.

What a fixture runs counts for every test of its file, because they may share it. A line that is run when its module is
imported, such as a constant, may change what any test of the rules sees.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from coverage import CoverageData

from tests.mutants.faults import CHECKOUT, Fault

PYTEST: Final = (sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider")
NO_SERVICES: Final = ("-m", "not spark and not kafka and not prometheus and not store and not long")
# The first failure decides; Hypothesis need not look for the smallest.
UNTIL_ONE_FAILS: Final = ("-x", "--hypothesis-profile=first-failure")
LONGEST_SECONDS: Final = 60.0
LONGEST_FACTOR: Final = 10.0
MOST_SECONDS: Final = 120.0
"""So long the tests of one fault take together, as they were counted."""
COUNTING: Final = ("-p", "tests.plugins.tracing", "--traced", "--traced-contexts")


@dataclass(frozen=True)
class Selection:
    """What one run of all tests has shown.

    Attributes:
        seconds: how long each test took.
        runs: the contexts that ran each line, by module: ``<test>|<phase>``, empty at an import.
    """

    seconds: Mapping[str, float]
    runs: Mapping[str, Mapping[int, Sequence[str]]]

    def tests_for(self, fault: Fault, source: str) -> list[str]:
        """Return the tests that can notice a fault in a module of this source: its own first, then the quickest.

        The slowest are left out where all would take longer than one fault may.
        """
        lines = self.runs.get(fault.module, {})
        contexts = {context for line in statement_at(source, fault.line) for context in lines.get(line, ())}
        tests = set(self._tests_in(contexts))
        if "" in contexts:
            tests |= {test for test in self.seconds if test.startswith(tuple(f"{room}/" for room in fault.tests))}
        own = f"test_{Path(fault.module).stem}.py"
        chosen = sorted(tests, key=lambda test: (Path(test.partition("::")[0]).name != own, self.seconds[test], test))
        spent = accumulate(map(self.seconds.__getitem__, chosen))
        return [
            test
            for place, (test, sum_) in enumerate(zip(chosen, spent, strict=True))
            if sum_ <= MOST_SECONDS or not place
        ]

    def longest(self, tests: Iterable[str]) -> float:
        """Return the seconds after which tests are ended: a fault may make a loop endless."""
        return LONGEST_SECONDS + LONGEST_FACTOR * sum(self.seconds[test] for test in tests)

    def _tests_in(self, contexts: Iterable[str]) -> Iterable[str]:
        for context in filter(None, contexts):
            test, _, phase = context.rpartition("|")
            file = test.partition("::")[0]
            yield from (test,) if phase == "run" else (each for each in self.seconds if each.startswith(f"{file}::"))


def statement_at(source: str, line: int) -> range:
    """Return the lines of the innermost statement around a line, of a compound one those before its body."""
    chosen = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):  # outer ones come first
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            decorators = [each.lineno for each in getattr(node, "decorator_list", ())]
            body = getattr(node, "body", None)
            end = max(body[0].lineno, node.lineno + 1) if body else (node.end_lineno or node.lineno) + 1
            lines = range(min(node.lineno, *decorators) if decorators else node.lineno, end)
            chosen = lines if line in lines else chosen
    return chosen


def selection_of(checkout: Path, modules: Iterable[str], rooms: Iterable[str], folder: Path, workers: int) -> Selection:
    """Run the tests of some rooms once, and learn which lines each of them runs.

    Args:
        checkout: where they run.
        modules: whose lines count, as patterns of paths relative to it.
        rooms: folders of tests, relative to it.
        folder: for what coverage and pytest write.
        workers: so many processes run them.

    Raises:
        SystemExit: a test fails without any fault, so nothing could be learned from it.
    """
    data, report, settings = folder / "coverage", folder / "tests.xml", folder / ".coveragerc"
    patterns = "".join(f"\n    {module}" for module in modules)
    settings.write_text(f"[run]\ndata_file = {data}\ninclude ={patterns}\n", encoding="utf-8")
    command = [*PYTEST, *NO_SERVICES, *COUNTING, f"--traced-by={settings}", f"--junitxml={report}"]
    # Folders of its own: else pytest first deletes what earlier runs left, which may be gigabytes of tables and logs.
    at_once = [f"--numprocesses={workers}", "--dist=loadfile", f"--basetemp={folder / 'tmp'}"]
    # The plugin, where the checkout has none of its own. What one test has played another one must run itself: else it
    # would not be known to run the lines.
    here = {**os.environ, "PYTHONPATH": str(CHECKOUT), "ISRWATCH_PLAYS": "apart"}
    ran = subprocess.run(
        [*command, *at_once, *rooms], cwd=checkout, env=here, check=False, stdout=subprocess.PIPE, text=True
    )
    if ran.returncode:
        sys.exit(f"{ran.stdout}\nthe tests must pass before faults are put in")
    counted = CoverageData(str(data))
    counted.read()
    runs = {
        str(Path(file).relative_to(checkout)): counted.contexts_by_lineno(file) for file in counted.measured_files()
    }
    return Selection(_seconds_of(report), runs)


def _seconds_of(report: Path) -> dict[str, float]:
    return {
        f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}": float(case.attrib["time"])
        for case in ET.parse(report).iter("testcase")  # noqa: S314 - pytest has just written it
    }
