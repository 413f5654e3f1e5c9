"""The plugin that lets no test skip, tried on a small project of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]

SUITE = """
import pytest

def test_runs(): pass

def test_skips_itself(): pytest.skip("no Java here")

@pytest.mark.skipif(True, reason="no Kafka here")
def test_is_skipped(): pass

@pytest.mark.xfail(reason="a known limit")
def test_is_expected_to_fail(): assert 1 == 2

@pytest.fixture
def broken():
    yield
    raise RuntimeError("teardown")

@pytest.mark.kafka
def test_fails_after_it_passed(broken): pass
"""


def run_suite(folder: Path, suite: str, **environment: str) -> subprocess.CompletedProcess[str]:
    room = folder / "tests" / "model"
    room.mkdir(parents=True, exist_ok=True)
    (room / "test_it.py").write_text(suite)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = kafka: starts Kafka\n")
    clean = {**os.environ, "CI": "", "ISRWATCH_NO_SKIPS": "", "PYTHONPATH": str(CHECKOUT), **environment}
    clean.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.plugins.no_skips", "-p", "no:cacheprovider", "-rfE", str(folder)],
        cwd=folder, env=clean, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("variable", ["CI", "ISRWATCH_NO_SKIPS"])
def test_a_skip_is_a_failure_where_everything_must_run(variable: str, tmp_path: Path) -> None:
    run = run_suite(tmp_path, SUITE, **{variable: "1"})
    assert run.returncode == 1
    assert run.stdout.splitlines()[-1] == "1 passed, 3 failed, 1 failed as expected"
    assert "no Java here\nA skipped test is a failure here" in run.stdout
    assert "no Kafka here\nA skipped test is a failure here" in run.stdout


@pytest.mark.parametrize("environment", [{}, {"CI": "0"}])
def test_a_developer_may_skip(environment: dict[str, str], tmp_path: Path) -> None:
    run = run_suite(tmp_path, SUITE.partition("@pytest.fixture")[0], **environment)
    assert (run.returncode, run.stdout.splitlines()[-1]) == (0, "1 passed, 0 failed, 2 skipped, 1 failed as expected")


def test_a_module_that_skips_itself_is_a_failure(tmp_path: Path) -> None:
    suite = "import pytest\npytest.importorskip('no_such_package')\ndef test_runs(): pass\n"
    run = run_suite(tmp_path, suite, CI="1")
    assert (run.returncode != 0, run.stdout.splitlines()[-1]) == (True, "0 passed, 1 failed")


def test_the_summary_counts_rooms_and_markers(tmp_path: Path) -> None:
    lines = run_suite(tmp_path, SUITE, CI="1").stdout.splitlines()
    assert "tests/model              1 passed, 3 failed, 1 failed as expected" in lines
    assert "marker kafka             0 passed, 1 failed" in lines
