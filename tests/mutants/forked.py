"""Faults within functions, tried in forks of a process that has collected the tests: a trial costs what its tests cost.

In the fork the function gets the code of the fault, wherever it is referred to. A fault outside of functions, such as
in a constant, must be imported: :mod:`tests.mutants.copied`.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from inspect import CO_OPTIMIZED
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final, NoReturn

import pytest

from tests.mutants.faults import CHECKOUT, Fault, Verdict
from tests.mutants.selection import Selection

Functions = dict[tuple[str, int], list[FunctionType]]
"""The functions of a module by their qualified name and first line."""
COMPREHENSIONS: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
NO_TEST_ENDED: Final = "a test does not end"
PROCESS_ENDED: Final = "the process of the tests ended"


class ForkedTrials:
    """A pytest plugin that tries faults instead of running the tests.

    Attributes:
        imported: the faults outside of functions, which were not tried.
        unsteady: tests that failed without any fault, too; since then they see nothing.
    """

    def __init__(
        self,
        faults: Iterable[Fault],
        selection: Selection,
        workers: int,
        report: Callable[[Verdict], None],
        checkout: Path = CHECKOUT,
    ) -> None:
        self._faults, self._selection, self._workers, self._report = faults, selection, workers, report
        self._checkout = checkout
        self._running: list[Trial] = []
        self.imported: list[Fault] = []
        self.unsteady: set[str] = set()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each fault, several at once."""
        try:
            self._try_all({item.nodeid: item for item in session.items})
        finally:
            for trial in self._running:
                trial.end()
        return True

    def _try_all(self, items: Mapping[str, pytest.Item]) -> None:
        functions = functions_by_file()
        gc.freeze()  # the forks share what there is, and their collectors need not look through it
        for fault in self._faults:
            path = self._checkout / fault.module
            source = path.read_text(encoding="utf-8")
            code = code_of_fault(compile(source, path, "exec"), compile(fault.code, path, "exec"), functions[str(path)])
            tests = [test for test in self._selection.tests_for(fault, source) if test in items]
            if code is None:
                self.imported.append(fault)
            elif not tests:
                self._report(Verdict(fault, "", 0))
            else:
                self._wait_for(self._workers - 1, items)
                longest = self._selection.longest(tests)
                steady = [items[test] for test in tests if test not in self.unsteady]
                self._running.append(Trial(fault, steady, code, longest))
        self._wait_for(0, items)

    def _wait_for(self, count: int, items: Mapping[str, pytest.Item]) -> None:
        """Wait until no more than so many trials run, and report those that ended."""
        while len(self._running) > count:
            time.sleep(0.005)
            for trial in [each for each in self._running if each.has_ended()]:
                self._running.remove(trial)
                seen_by = trial.seen_by()
                if seen_by in items and self._fails_anyway(items[seen_by], trial.fault):
                    self.unsteady.add(seen_by)
                    self._running.append(trial.without(seen_by))
                else:
                    self._report(Verdict(trial.fault, seen_by, len(trial.items)))

    def _fails_anyway(self, item: pytest.Item, fault: Fault) -> bool:
        return bool(Trial(fault, [item], {}, self._selection.longest([item.nodeid])).wait())


class Trial:
    """Tests that run in a fork, where functions have other code."""

    def __init__(
        self, fault: Fault, items: Sequence[pytest.Item], code: Mapping[FunctionType, CodeType], longest: float
    ) -> None:
        self.fault, self.items = fault, items
        self._code, self._longest = code, longest
        self._deadline = time.monotonic() + longest
        self._result, result = os.pipe()
        self._status: int | None = None
        self._pid = os.fork()
        if not self._pid:
            _run(items, code, result)
        os.close(result)

    def without(self, test: str) -> Trial:
        """Try again without a test."""
        return Trial(self.fault, [item for item in self.items if item.nodeid != test], self._code, self._longest)

    def has_ended(self) -> bool:
        """Return whether the tests have ended; ends them if they take too long."""
        if time.monotonic() > self._deadline:
            self.end()
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        self._status = status if pid else None
        return bool(pid)

    def end(self) -> None:
        """End the tests, and what they have started."""
        os.kill(self._pid, signal.SIGKILL)
        with suppress(ProcessLookupError):  # it may not have a group of its own yet
            os.killpg(self._pid, signal.SIGKILL)

    def seen_by(self) -> str:
        """Return the test that failed, or why the tests ended otherwise; empty if all passed."""
        with os.fdopen(self._result) as result:
            failed = result.read()
        if self._status and not failed:
            return NO_TEST_ENDED if os.WIFSIGNALED(self._status) else PROCESS_ENDED
        return failed

    def wait(self) -> str:
        """Wait for the end, and return :meth:`seen_by`."""
        while not self.has_ended():
            time.sleep(0.005)
        return self.seen_by()


def _run(items: Sequence[pytest.Item], code: Mapping[FunctionType, CodeType], result: int) -> NoReturn:
    """Run tests until one fails, and write its name."""
    status = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        for function, faulty in code.items():
            function.__code__ = faulty
        for item in items[:1]:
            item.config.pluginmanager.unregister(name="terminalreporter")
        for item, following in pairwise([*items, None]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if item.session.testsfailed:
                os.write(result, item.nodeid.encode())
                break
        status = 0
    finally:
        os._exit(status)


def functions_by_file() -> defaultdict[str, Functions]:
    """Return every function that there is, by the file of its module."""
    gc.unfreeze()
    by_file: defaultdict[str, Functions] = defaultdict(lambda: defaultdict(list))
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            by_file[each.__code__.co_filename][_key(each.__code__)].append(each)
    return by_file


def code_of_fault(before: CodeType, after: CodeType, functions: Functions) -> dict[FunctionType, CodeType] | None:
    """Return the functions that a fault changes with their new code; None if it also changes what an import does.

    Args:
        before: the code of the module.
        after: the same with the fault.
        functions: those of the imported module.
    """
    old, new = list(_functions_in(before)), list(_functions_in(after))
    keys = list(map(_key, old))
    if _at_import(before) != _at_import(after) or keys != list(map(_key, new)) or len(set(keys)) < len(keys):
        return None
    changed = {_key(one): other for one, other in zip(old, new, strict=True) if one != other}
    code = {function: faulty for key, faulty in changed.items() for function in functions.get(key, ())}
    is_found = all(key in functions for key in changed)
    return code if is_found and all(each.__code__.co_freevars == it.co_freevars for each, it in code.items()) else None


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    """Yield the functions of a module and of its classes, not those within functions."""
    for each in code.co_consts:
        if _is_function(each):
            yield each
        elif isinstance(each, CodeType):
            yield from _functions_in(each)


def _at_import(code: CodeType) -> tuple[object, ...]:
    """Return what an import runs: of functions it only makes them."""
    consts = [
        _key(each) if _is_function(each) else _at_import(each) if isinstance(each, CodeType) else (type(each), each)
        for each in code.co_consts
    ]
    return code.co_code, code.co_names, tuple(consts)


def _is_function(code: object) -> bool:
    """Return whether it is the code of a function: that of classes and comprehensions runs at an import."""
    if not isinstance(code, CodeType) or code.co_name in COMPREHENSIONS:
        return False
    return bool(code.co_flags & CO_OPTIMIZED)


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno
