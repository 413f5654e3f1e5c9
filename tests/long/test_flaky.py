"""Rounds of a file that fails in one of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.long import flaky

ONCE = """
import pathlib

def test_it():
    ran = pathlib.Path("runs")
    with ran.open("a") as file: file.write(".")
    assert len(ran.read_text()) > 1
"""


@pytest.fixture
def rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A test that fails in its first run; results of their own, and no busy processes."""
    (tmp_path / "test_it.py").write_text(ONCE)
    monkeypatch.setattr(flaky, "ROOT", tmp_path)
    monkeypatch.setattr(flaky, "BUSY_PROCESSES", 1)
    monkeypatch.setattr(flaky, "PYTEST", "pytest -q -rf")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["flaky", "test_it.py", "--rounds=3", *options])
    return flaky.main()


def test_a_test_that_fails_in_one_round_is_named_and_only_that_round_is_run_again(
    rounds: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch) == 1
    assert "flaky: test_it.py::test_it\n3 rounds, 1 tests failed in one of them\n" in capfd.readouterr().out
    assert run(monkeypatch, "--resume") == 0
    assert (rounds / "runs").read_text() == "...."
