"""``deploy/spark/main.py`` is ``isrwatch job``: the same help, messages and exit codes. No Spark is started here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "spark" / "main.py"), *arguments], capture_output=True, text=True,
        check=False, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("--config", "/nonexistent"),
            "cannot read the configuration /nonexistent: No such file or directory; start from conf/isrwatch.toml",
        ),
        (("--quux",), "No such option: --quux (Possible options: --query) (see isrwatch job --help)"),
    ],
)
def test_an_error_of_the_user_is_one_sentence_and_exit_code_2(arguments: tuple[str, ...], line: str) -> None:
    run = launch(*arguments)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"{line}\n")


def test_the_help_is_that_of_the_job() -> None:
    run = launch("--help")
    assert (run.returncode, "Usage: isrwatch job" in run.stdout) == (0, True)
