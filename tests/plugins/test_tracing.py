"""The plugin that traces, tried on a small project of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
CHECKOUT = Path(__file__).parents[2]
RULE = """\
def clipped(value):
    if value > 3:
        return 3
    return value
"""
TESTS = """\
import sys
import pytest
from product.room.rule import clipped

@pytest.fixture(scope="module")
def tracer(): return sys.gettrace()

def test_in_a_fixture(tracer): assert (tracer is None) is {untraced}
def test_in_a_test(): assert (sys.gettrace() is None) is {untraced}
def test_small(): assert clipped(1) == 1
"""


def run_suite(folder: Path, *options: str, limit: int = 0) -> subprocess.CompletedProcess[str]:
    (folder / "product" / "room").mkdir(parents=True)
    (folder / "product" / "room" / "rule.py").write_text(RULE)
    for name in ("test_one.py", "test_two.py"):
        (folder / name).write_text(TESTS.format(untraced="--traced" not in options))
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\npythonpath = .\n")
    (folder / "settings").write_text(
        f"[run]\nbranch = true\ndata_file = {folder}/data\nsource = {folder}/product\n[report]\nfail_under = {limit}\n"
    )
    command = [sys.executable, "-m", "pytest", "-n2", "--dist=loadfile", "-p", "no:cacheprovider"]
    command += ["-p", "tests.plugins.tracing", "--traced-by=settings", *options]
    return subprocess.run(
        [*command, *sorted(folder.glob("test_*.py"))],
        cwd=folder, env={"PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_nothing_is_traced_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert run_suite(tmp_path).returncode == 0
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("limit", "code"), [(66, 0), (70, 1)])
def test_what_all_processes_ran_is_reported_and_must_reach_the_limit(limit: int, code: int, tmp_path: Path) -> None:
    run = run_suite(tmp_path, "--traced", limit=limit)
    assert "6 passed" in run.stdout
    assert "product/room              66.7 %" in run.stdout
    assert run.returncode == code
    assert (f"66.7 % of the product is covered, and {limit}" in run.stdout) is bool(code)
    assert [path.name for path in tmp_path.glob("data*")] == ["data"]
