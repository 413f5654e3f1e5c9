"""A small project with a rule and tests of it, and what one run of them shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.faults import Fault
from tests.mutants.selection import Selection, selection_of

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

@pytest.fixture(scope="session")
def four(): return doubled(2)

def test_first(four): assert four

def test_second(four): assert four == 4

def test_idle(): pass
"""
SMALL, LARGE = "tests/test_rule.py::test_small", "tests/test_rule.py::test_large"
OTHERS = [f"tests/test_other.py::test_{name}" for name in ("first", "second", "idle")]


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "tests").mkdir()
    (folder / "rule.py").write_text(RULE)
    (folder / "tests/test_rule.py").write_text(OWN)
    (folder / "tests/test_other.py").write_text(OTHER)
    (folder / "tests/conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('first-failure')\n"
    )
    markers = "".join(f"\n    {name}: starts something" for name in ("spark", "kafka", "prometheus", "long"))
    (folder / "pytest.ini").write_text(
        f"[pytest]\naddopts = --import-mode=importlib\npythonpath = .\nmarkers ={markers}\n"
    )
    return folder


@pytest.fixture(scope="session")
def selection(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Selection:
    return selection_of(project, ["rule.py"], ["tests"], tmp_path_factory.mktemp("data"), 1)


def fault(line: int, old: str = "", new: str = "") -> Fault:
    code = "\n".join(each.replace(old, new) if n == line else each for n, each in enumerate(RULE.splitlines(), 1))
    return Fault("a fault", "rule.py", line, ("tests",), code)
