"""What ``make env`` shows while it installs, where no terminal shows pip's own progress."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIP = """#!/bin/sh
case "$*" in
*--require-hashes*)
    echo "Collecting pyspark==4.2.0 (from -r requirements/run.txt (line 798))"
    echo "  Downloading https://mirror/packages/pyspark-4.2.0.tar.gz (434.1 MB)"
    echo "  Using cached pyarrow-26.0.1-cp311-manylinux.whl (47.9 MB)"
    echo "  Downloading typer-0.20.0-py3-none-any.whl (47 kB)"
    echo "  Downloading numpy-2.3.0.whl (9.9 MB)"
    echo "  Building wheel for pyspark (pyproject.toml): started"
    echo "Installing collected packages: a, b"
    exit CODE;;
esac
"""


def make_env(folder: Path, code: int) -> subprocess.CompletedProcess[str]:
    """Run ``make env`` in a copy of what it reads, with a pip that says what pip says."""
    for name in ("Makefile", "pyproject.toml", "requirements/run.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to(sys.executable)
    pip = folder / "pip"
    pip.write_text(PIP.replace("CODE", str(code)))
    pip.chmod(0o755)
    # A make that is run by ``make test`` would say which directory it enters.
    command = ["make", "--no-print-directory", "env", f"PIP={pip}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_large_packages_are_shown_as_they_arrive(tmp_path: Path) -> None:
    made = make_env(tmp_path, 0)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[1:] == [
        "  pyspark-4.2.0.tar.gz (434.1 MB)",
        "  pyarrow-26.0.1-cp311-manylinux.whl (47.9 MB)",
        "  Building wheel for pyspark",
        "  Installing what has arrived",
    ]
    assert (tmp_path / ".venv/.ready-run").exists()


def test_an_installation_that_fails_ends_make(tmp_path: Path) -> None:
    assert make_env(tmp_path, 1).returncode != 0
    assert not (tmp_path / ".venv/.ready-run").exists()
