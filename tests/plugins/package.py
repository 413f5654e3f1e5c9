"""What is submitted to a Spark cluster: the package of the code, and a Python that has no isrwatch of its own."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the package."""
    return packaged(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Python that has no isrwatch."""
    return python_without_isrwatch(tmp_path_factory.mktemp("python"))


def packaged(folder: Path) -> Path:
    """Build the package as ``make package`` does, into a folder that is there."""
    command = ["make", "--no-print-directory", "package", f"DIST={folder}", f"PACKAGER={sys.executable}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder / "isrwatch.zip"


def python_without_isrwatch(folder: Path) -> Path:
    """Make a Python with every package of this one but isrwatch: what the machines of a Spark cluster have."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next(path for path in map(Path, sys.path) if (path / "pyspark").is_dir())
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "packages.pth").write_text(f"{packages}\n")  # .pth files over there, isrwatch's own, are not read
    return folder / "bin" / "python"
