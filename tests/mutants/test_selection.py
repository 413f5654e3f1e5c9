"""Which tests are run for a fault, learned from a small project of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.mutants.faults import Fault, what_runs
from tests.mutants.selection import Selection, selection_of, statement_at
from tests.mutants.trial import tried

if TYPE_CHECKING:
    from pathlib import Path

RULE = """\
LIMIT = 3

def clipped(value):
    if value > LIMIT:
        return LIMIT
    return value

def doubled(value):
    return value + value

def never():
    return 1
"""
OWN = """\
from rule import clipped, doubled

def test_small(): assert clipped(1) == 1

def test_large(): assert clipped(4) == 3
"""
OTHER = """\
import pytest
from rule import doubled

@pytest.fixture(scope="module")
def four(): return doubled(2)

def test_first(four): assert four

def test_second(four): assert four == 4

def test_idle(): pass
"""
STATEMENTS = """\
x = [1,
     2]
@cached
def rule(value):
    if (value and
            x):
        return 1
    try: value()
    except KeyError: pass
"""
SMALL, LARGE = "tests/test_rule.py::test_small", "tests/test_rule.py::test_large"
OTHERS = [f"tests/test_other.py::test_{name}" for name in ("first", "second", "idle")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "tests").mkdir()
    (folder / "rule.py").write_text(RULE)
    (folder / "tests/test_rule.py").write_text(OWN)
    (folder / "tests/test_other.py").write_text(OTHER)
    (folder / "tests/conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('first-failure')\n"
    )
    markers = "".join(f"\n    {name}: starts something" for name in ("spark", "kafka", "prometheus", "slow"))
    (folder / "pytest.ini").write_text(
        f"[pytest]\naddopts = --import-mode=importlib\npythonpath = .\nmarkers ={markers}\n"
    )
    (folder / ".coveragerc").write_text("[run]\nbranch = true\nsource = .\n")
    return folder


@pytest.fixture(scope="module")
def selection(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Selection:
    return selection_of(project, ["tests"], tmp_path_factory.mktemp("data"))


def fault(line: int, old: str = "", new: str = "") -> Fault:
    code = "\n".join(each.replace(old, new) if n == line else each for n, each in enumerate(RULE.splitlines(), 1))
    return Fault("a fault", "rule.py", line, ("tests",), code)


def test_only_the_tests_that_run_the_line_are_chosen(selection: Selection) -> None:
    assert selection.tests_for(fault(5), RULE) == [LARGE]
    assert set(selection.tests_for(fault(4), RULE)) == {SMALL, LARGE}


def test_a_line_that_no_test_runs_has_none(selection: Selection) -> None:
    assert selection.tests_for(fault(12), RULE) == []


def test_what_a_fixture_runs_counts_for_every_test_of_its_file(selection: Selection) -> None:
    assert set(selection.tests_for(fault(9), RULE)) == set(OTHERS)


def test_a_constant_is_a_matter_of_all_tests_those_of_its_module_first(selection: Selection) -> None:
    chosen = selection.tests_for(fault(1), RULE)
    assert set(chosen[:2]) == {SMALL, LARGE}
    assert set(chosen[2:]) == set(OTHERS)


def test_own_tests_come_first_and_then_the_quickest() -> None:
    runs = {
        "rule.py": {4: [f"tests/{name}|run" for name in ("test_a.py::slow", "test_a.py::quick", "test_rule.py::x")]}
    }
    seconds = {"tests/test_a.py::slow": 2.0, "tests/test_a.py::quick": 1.0, "tests/test_rule.py::x": 9.0}
    chosen = Selection(seconds, runs).tests_for(fault(4), RULE)
    assert chosen == ["tests/test_rule.py::x", "tests/test_a.py::quick", "tests/test_a.py::slow"]


def test_nothing_is_learned_from_tests_that_fail_without_a_fault(tmp_path: Path) -> None:
    (tmp_path / "test_rule.py").write_text("def test_fails(): assert False\n")
    with pytest.raises(SystemExit, match="must pass before"):
        selection_of(tmp_path, ["test_rule.py"], tmp_path)


def test_a_fault_is_seen_if_a_test_fails_of_it_and_the_module_is_as_before(project: Path, selection: Selection) -> None:
    assert tried(fault(5, "LIMIT", "2"), selection, project).is_seen
    assert not tried(fault(4, ">", ">="), selection, project).is_seen  # of 3 itself there is no test
    assert not tried(fault(12, "1", "2"), selection, project).is_seen
    assert (project / "rule.py").read_text() == RULE


@pytest.mark.parametrize(
    ("line", "expected"),
    [(1, {1, 2}), (2, {1, 2}), (3, {3, 4}), (4, {3, 4}), (5, {5, 6}), (6, {5, 6}), (7, {7}), (8, {8}), (9, {9})],
)
def test_a_statement_is_its_own_lines_and_a_compound_one_those_before_its_body(line: int, expected: set[int]) -> None:
    assert set(statement_at(STATEMENTS, line)) == expected


@pytest.mark.parametrize(
    "changed",
    [
        "def f(x: str) -> int: return x",
        "if TYPE_CHECKING:\n    import a\ndef f(x: int) -> int: return x",
        "class P(Protocol):\n    limit = 3\ndef f(x): return x",
    ],
)
def test_annotations_protocols_and_imports_for_types_are_no_faults(changed: str) -> None:
    assert what_runs(changed) == what_runs("def f(x): return x")


def test_what_is_no_python_is_no_fault() -> None:
    assert what_runs("def f(") is None
