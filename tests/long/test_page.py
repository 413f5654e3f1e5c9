"""The page of the long tests has each part, and no failure; what runs the parts is tried with small ones."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from docs.builder.quality import Section, marks, section_of
from tests.long import __main__ as long
from tests.long import page
from tests.long.page import PAGE, Row, read, rendered
from tests.long.parts import PARTS, Part

ROOT = Path(__file__).parents[2]
EMPTY = "\n".join(marks(Section.LONG))
ROW = Row("passed: 7 runs, 0 failed", "0123456789ab", "2026-11-01", "7", "5")


def test_the_page_has_a_row_of_each_part_and_is_as_it_is_written() -> None:
    rows = read()
    assert list(rows) == list(PARTS)
    assert section_of(PAGE.read_text(), Section.LONG) == rendered(rows).strip()


def test_no_part_failed_and_each_was_run_at_a_commit_of_the_repository() -> None:
    git = ["git", "-C", str(ROOT)]
    rows = {name: row for name, row in read().items() if row.result != page.NOT_RUN}
    assert [name for name, row in rows.items() if not row.result.startswith(page.PASSED)] == []
    shallow = subprocess.run([*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True, check=True)
    if shallow.stdout.strip() == "false":
        commits = {row.commit for row in rows.values()}
        asked = "\n".join(f"{each}^{{commit}}" for each in sorted(commits))
        told = subprocess.run(
            [*git, "cat-file", "--batch-check"], input=asked, capture_output=True, text=True, check=True
        )
        assert [line for line in told.stdout.splitlines() if line.split()[1:2] != ["commit"]] == []


def test_a_row_is_read_as_it_was_written() -> None:
    assert page.rows_in(rendered({"fuzz": ROW}))["fuzz"] == ROW


def test_the_weekly_run_has_each_part() -> None:
    text = (ROOT / ".github" / "workflows" / "long.yml").read_text()
    (listed,) = re.findall(r"part: \[(.*?)\]", text, re.DOTALL)
    assert re.findall(r"[a-z0-9-]+", listed) == [name for name, part in PARTS.items() if part.in_all]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A part that counts its runs, and passes in the second; a page and results of its own."""
    count = (
        f"import pathlib; it = pathlib.Path({str(tmp_path / 'runs')!r}); n = it.stat().st_size if it.exists() else 0"
    )
    (tmp_path / "counted.py").write_text(f"{count}\nit.open('a').write('.')\nprint(n, 'runs, 0 failed')\nexit(not n)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(long, "PARTS", {"small": Part("it counts", "counted", says=r"\d+ runs, \d+ failed")})
    monkeypatch.setattr(long, "FOLDER", tmp_path / "long")
    (tmp_path / "page.md").write_text(EMPTY)
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "PARTS", long.PARTS)
    monkeypatch.setattr(long, "changed", lambda: "")
    return tmp_path


def test_a_part_that_failed_is_written_and_runs_again_and_one_that_passed_does_not(small: Path) -> None:
    assert long.ran("small", 5, resume=True, writes=True) == "failed: 0 runs, 0 failed"
    assert page.read()["small"].result == "failed: 0 runs, 0 failed"
    for _ in range(2):
        assert long.ran("small", 6, resume=True, writes=True) == "passed: 1 runs, 0 failed"
    assert (small / "runs").read_text() == ".."
    row = page.read()["small"]
    assert (row.seed, row.result) == ("", "passed: 1 runs, 0 failed")


def test_without_resume_a_part_runs_again(small: Path) -> None:
    for _ in range(3):
        long.ran("small", 5, resume=False, writes=False)
    assert (small / "runs").read_text() == "..."
    assert (small / "page.md").read_text() == EMPTY


def test_a_changed_checkout_writes_nothing(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "changed", lambda: " M streaming/errors.py")
    long.ran("small", 5, resume=False, writes=True)
    assert (small / "page.md").read_text() == EMPTY


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["in front", "in the background"])
def test_a_part_that_takes_longer_than_it_may_is_stopped(
    small: Path, monkeypatch: pytest.MonkeyPatch, handler: Any
) -> None:
    monkeypatch.setattr(long, "LONGEST_SECONDS", 0.5)
    late = f"import pathlib, time; time.sleep(10); pathlib.Path({str(small / 'late')!r}).touch()"
    (small / "counted.py").write_text(late)
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert long.ran("small", 5, resume=False, writes=True) == long.STOPPED
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (small / "late").exists()
    assert (small / "page.md").read_text() == EMPTY
