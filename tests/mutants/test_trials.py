"""Faults of a small project, tried in forks and in a copy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.mutants.conftest import LARGE, RULE, SMALL, fault
from tests.mutants.copied import tried_at_once
from tests.mutants.faults import CHECKOUT
from tests.mutants.forked import PROCESS_ENDED, code_of_fault
from tests.mutants.selection import Selection

TRY = """
import json, pathlib, sys, pytest
from tests.mutants.faults import Fault
from tests.mutants.forked import ForkedTrials
from tests.mutants.selection import Selection
given = json.load(sys.stdin)
selection = Selection(given["seconds"], {"rule.py": {int(line): each for line, each in given["runs"].items()}})
verdicts = {}
faults = [Fault(name, "rule.py", line, ("tests",), code) for name, line, code in given["faults"]]
trials = ForkedTrials(
    faults, selection, 2, lambda verdict: verdicts.update({verdict.fault.name: verdict.seen_by}), pathlib.Path.cwd()
)
code = pytest.main(["-q", "-p", "no:cacheprovider", "tests"], plugins=[trials])
named = [verdicts, [each.name for each in trials.imported], sorted(trials.unsteady), int(code)]
json.dump(named, open("verdicts.json", "w"))
"""


def forked(
    project: Path, selection: Selection, **faults: tuple[int, str]
) -> tuple[dict[str, str], list[str], list[str], int]:
    """Try faults of the rule, each a line and the module with it.

    Gives who saw them, those that were not tried, the tests that fail of none, too, and the exit code.
    """
    given = {
        "seconds": dict(selection.seconds),
        "runs": {line: list(each) for line, each in selection.runs["rule.py"].items()},
        "faults": [(name, line, code) for name, (line, code) in faults.items()],
    }
    subprocess.run(
        [sys.executable, "-c", TRY], cwd=project, env={"PYTHONPATH": str(CHECKOUT), "PATH": ""},
        input=json.dumps(given), text=True, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    verdicts, imported, unsteady, code = json.loads((project / "verdicts.json").read_text())
    return verdicts, imported, unsteady, code


def test_a_fault_is_seen_by_the_test_that_fails_of_it_and_by_no_other(project: Path, selection: Selection) -> None:
    verdicts, imported, unsteady, code = forked(
        project,
        selection,
        wrong=(5, RULE.replace("return LIMIT", "return 2")),
        edge=(4, RULE.replace(">", ">=")),  # of 3 itself there is no test
        shared=(9, RULE.replace("value + value", "value - value")),
        unrun=(12, RULE.replace("return 1", "return 2")),
        ends=(6, RULE.replace("    return value\n", "    import os; os._exit(3)\n", 1)),
        constant=(1, RULE.replace("LIMIT = 3", "LIMIT = 4")),
    )

    assert verdicts.pop("shared").startswith("tests/test_other.py::")
    assert verdicts == {"wrong": LARGE, "edge": "", "unrun": "", "ends": PROCESS_ENDED}
    assert (imported, unsteady) == (["constant"], [])
    assert code == 0


def test_a_test_that_fails_without_any_fault_is_named_and_sees_none(project: Path, selection: Selection) -> None:
    broken = project / "tests/test_rule.py"
    before = broken.read_text()
    broken.write_text(before.replace("clipped(1) == 1", "clipped(1) == 5"))
    try:
        verdicts, _, unsteady, _ = forked(
            project, selection, wrong=(6, RULE.replace("return value\n", "return 7\n", 1))
        )
    finally:
        broken.write_text(before)
    assert verdicts["wrong"] != SMALL
    assert unsteady == [SMALL]


def test_faults_outside_of_functions_are_tried_in_copies_which_are_as_before_then(
    project: Path, selection: Selection, tmp_path: Path
) -> None:
    copies = [project, shutil.copytree(project, tmp_path / "copy")]
    faults = [fault(1, "3", "2"), fault(12, "1", "2"), fault(1, "3", "4")]
    verdicts = {verdict.fault: bool(verdict.seen_by) for verdict in tried_at_once(faults, selection, copies)}
    assert [verdicts[each] for each in faults] == [True, False, True]
    assert {(copy / "rule.py").read_text() for copy in copies} == {RULE}


def test_only_a_fault_within_a_live_function_can_be_put_in() -> None:
    source = "def rule(value, by=1):\n    return value + by\nclass Box:\n    size = [n for n in (1, 2)]\n"
    before = compile(source, "rule.py", "exec")
    scope: dict[str, object] = {}
    exec(before, scope)  # noqa: S102 - a module of two lines
    rule = scope["rule"]

    def code(old: str, new: str) -> object:
        key = rule.__code__.co_qualname, rule.__code__.co_firstlineno  # type: ignore[attr-defined]
        return code_of_fault(before, compile(source.replace(old, new), "rule.py", "exec"), {key: [rule]})  # type: ignore[list-item]

    assert list(code("+", "-")) == [rule]  # type: ignore[call-overload]
    assert code("by=1", "by=2") is None
    assert code("(1, 2)", "(1, 3)") is None
    assert code_of_fault(before, compile(source.replace("+", "-"), "rule.py", "exec"), {}) is None
