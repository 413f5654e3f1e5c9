"""Which tests are run for a fault, learned from a small project of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.conftest import LARGE, OTHERS, RULE, SMALL, fault
from tests.mutants.faults import CHECKOUT, RULES, what_runs
from tests.mutants.selection import MOST_SECONDS, Selection, selection_of, statement_at
from tests.times import SERVICES

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


def test_the_slowest_tests_are_left_out_where_all_take_too_long_but_never_the_first() -> None:
    slow = [f"tests/test_a.py::{name}" for name in ("quick", "slow", "slowest")]
    seconds = dict(zip(slow, (MOST_SECONDS / 4, MOST_SECONDS / 2, MOST_SECONDS), strict=True))
    for names, expected in ((slow, slow[:2]), (slow[2:], slow[2:])):
        selection = Selection(seconds, {"rule.py": {4: [f"{name}|run" for name in names]}})
        assert selection.tests_for(fault(4), RULE) == expected


def test_each_module_of_rules_tables_and_sources_is_drawn_from_once_and_has_tests_without_services() -> None:
    drawn = [path for glob in RULES for path in CHECKOUT.glob(glob)]
    rooms = ("changes", "delta", "sources")
    there = {path for room in rooms for path in (CHECKOUT / "streaming" / room).rglob("*.py")}
    assert (there - set(drawn), len(drawn) - len(set(drawn))) == (set(), 0)
    for tests in RULES.values():
        texts = [path.read_text() for room in tests for path in (CHECKOUT / room).rglob("test_*.py")]
        assert [text for text in texts if not SERVICES.search(text)], tests


def test_nothing_is_learned_from_tests_that_fail_without_a_fault(tmp_path: Path) -> None:
    (tmp_path / "test_rule.py").write_text("def test_fails(): assert False\n")
    with pytest.raises(SystemExit, match="must pass before"):
        selection_of(tmp_path, ["rule.py"], ["test_rule.py"], tmp_path, 1)


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
